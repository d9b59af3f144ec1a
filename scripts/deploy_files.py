"""Write deploy/kustomize and deploy/helm from the builders (``python scripts/deploy_files.py``).

The objects stand once, in ``ringleader.kubernetes.objects.operator_manifests``. A test compares these files
with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringleader import __version__
from ringleader.kubernetes.mpijob.crd import crd
from ringleader.kubernetes.mpijob.yaml_text import text_of
from ringleader.kubernetes.objects.operator_manifests import NAME, RESOURCES, Installation, manifests

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
REPOSITORY = "ringleader-operator"
IMAGE = f"{REPOSITORY}:{__version__}"
BASE, OVERLAY, CHART = "kustomize/base", "kustomize/overlay", f"helm/{NAME}"
COMPONENTS = {"exec-spawn": "has_exec_spawn", "log-tails": "has_log_tails"}
"""Folder below kustomize/components → what of an installation it switches on."""

IMAGE_IS_KNOWN = f"""\
replacements:
# The operator starts its own image in the Pods of jobs.
- source:
    kind: Deployment
    name: {NAME}
    fieldPath: spec.template.spec.containers.0.image
  targets:
  - select:
      kind: Deployment
      name: {NAME}
    fieldPaths:
    - spec.template.spec.containers.0.env.[name=RINGLEADER_OPERATOR_IMAGE].value
"""
OVERLAY_TEXT = f"""\
# Copy this folder and say where your image is.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- ../base
# What is off unless asked for: take the sign away.
# components:
# - ../components/exec-spawn
# - ../components/log-tails
images:
- name: {REPOSITORY}
  newName: registry.example.com/{REPOSITORY}
  newTag: {__version__}
  # What was pushed, instead of a tag that somebody may move:
  # digest: sha256:…
{IMAGE_IS_KNOWN}"""

CHART_TEXT = f"""\
apiVersion: v2
name: {NAME}
description: Ringleader's operator of MPIJobs (kubeflow.org/v2beta1)
type: application
version: {__version__}
appVersion: {__version__}
kubeVersion: ">=1.28.0-0"
"""
VALUES_TEXT = f"""\
# Image that deploy/operator/Dockerfile makes. Launchers of jobs run it too: where it takes a pull secret,
# each job names one of its own namespace.
image:
  repository: {REPOSITORY}
  # Empty: the chart's appVersion.
  tag: ""
  # sha256:… of what was pushed; it counts instead of the tag, which somebody may move.
  digest: ""
  pullPolicy: IfNotPresent
# Of the operator's own Pods: [{{name: registry}}].
imagePullSecrets: []
# The one namespace whose jobs it looks after; empty: all namespaces.
scope: ""
# Gang scheduler of jobs that name none: volcano, or the name of a scheduler with coscheduling.
gangScheduling: ""
# End of host names, such as cluster.local; empty: they end in .svc.
clusterDomain: ""
# Seconds that a launcher waits for workers that have an address and do not answer; empty: 900.
waitTimeout: ""
# Operators, one of which works.
replicas: 1
# Rights for jobs with the annotation ringleader/spawn: exec. Without them such jobs are refused.
execSpawn: false
# The end of a failed container's log in status and events, and the right to read logs. Logs may hold secrets.
logTails: false
# Policies that keep the operator's account to what belongs to MPIJobs: true or false. They belong to no
# namespace and need Kubernetes 1.30. Empty: with an operator of all namespaces or with execSpawn, where the
# cluster knows them.
admissionPolicy: ""
# Only Pods of its own namespace and of namespaces with the label metrics=enabled reach the metrics.
networkPolicy: true
{text_of([{"resources": RESOURCES}])}\
nodeSelector: {{}}
tolerations: []
affinity: {{}}
priorityClassName: ""
"""
HELPERS_TEXT = f"""\
{{{{- define "{NAME}.name" -}}}}
{NAME}
{{{{- if and .Values.scope (ne .Values.scope .Release.Namespace) }}}}-{{{{ .Values.scope }}}}{{{{ end }}}}
{{{{- end -}}}}
"""
_NAME = f'{{{{ include "{NAME}.name" . }}}}'
IN_CHART = {
    f"{NAME}-the-scope": _NAME,
    "the-namespace": "{{ .Release.Namespace }}",
    "the-scope": "{{ .Values.scope }}",
    "the-image": '"{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}'
    ':{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}"',
    "4242": "{{ .Values.replicas }}",
}
"""What a chart's user says → where it is in a template."""
OPTIONAL = {
    "- --namespace=the-scope": ("with .Values.scope", "- --namespace={{ . }}"),
    "- --gang-scheduling=the-gang": ("with .Values.gangScheduling", "- --gang-scheduling={{ . }}"),
    "- --cluster-domain=the-domain": ("with .Values.clusterDomain", "- --cluster-domain={{ . }}"),
    "- --wait-timeout=4243": ("with .Values.waitTimeout", "- --wait-timeout={{ . }}"),
    "- --exec-spawn": ("if .Values.execSpawn", "- --exec-spawn"),
    "- --log-tails": ("if .Values.logTails", "- --log-tails"),
    f"app.kubernetes.io/instance: {NAME}-the-scope": (
        f'if ne (include "{NAME}.name" .) "{NAME}"',
        f"app.kubernetes.io/instance: {_NAME}",
    ),
}
"""Line of an object → when it is there, and how it reads."""
PLACEMENT = ("imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName")
"""Fields of the operator's Pods that are values of the same name."""
POLICIES = (
    'and (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version)'
    ' (or (eq (toString .Values.admissionPolicy) "true")'
    ' (and (eq (toString .Values.admissionPolicy) "") (or (not .Values.scope) .Values.execSpawn)))'
)
RIGHTS = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")


def files() -> dict[str, str]:
    """Return every generated file: path below deploy/ → text."""
    return {**_kustomize(), **_chart()}


def _kustomize() -> dict[str, str]:
    wish = Installation(image=IMAGE, has_crd=False)
    base = manifests(wish)
    listed = ["crd.yaml", "operator.yaml"]
    kind = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    found = {
        f"{BASE}/crd.yaml": text_of([crd()]),
        f"{BASE}/operator.yaml": text_of(base),
        f"{BASE}/kustomization.yaml": text_of([{**kind, "resources": listed}]),
        f"{OVERLAY}/kustomization.yaml": OVERLAY_TEXT,
    }
    for name, field in COMPONENTS.items():
        objects = manifests(replace(wish, **{field: True}))
        patch = [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": f"--{name}"}]
        component = {
            "apiVersion": "kustomize.config.k8s.io/v1alpha1",
            "kind": "Component",
            "resources": ["objects.yaml"],
            "patches": [{"path": "arguments.yaml", "target": {"kind": "Deployment", "name": NAME}}],
        }
        folder = f"kustomize/components/{name}"
        found[f"{folder}/kustomization.yaml"] = text_of([component])
        found[f"{folder}/arguments.yaml"] = text_of([patch])
        found[f"{folder}/objects.yaml"] = text_of(
            one for one in objects if one not in base and one["kind"] != "Deployment"
        )
    return found


def _chart() -> dict[str, str]:
    wish = Installation(
        image="the-image",
        namespace="the-namespace",
        gang="the-gang",
        cluster_domain="the-domain",
        wait_timeout=4243,
        replicas=4242,
        has_exec_spawn=True,
        has_log_tails=True,
        has_crd=False,
        has_namespace=False,
    )
    everywhere, scoped = manifests(wish), manifests(replace(wish, scope="the-scope"))
    found = {"Chart.yaml": CHART_TEXT, "values.yaml": VALUES_TEXT, "crds/mpijobs.yaml": text_of([crd()])}
    found["templates/_helpers.tpl"] = HELPERS_TEXT
    for name, objects, guard in (
        ("cluster-rights", everywhere, "not .Values.scope"),
        ("namespace-rights", scoped, ".Values.scope"),
    ):
        chosen = [one for one in objects if one["kind"] in RIGHTS]
        for part, value in (("-exec", "execSpawn"), ("-logs", "logTails")):
            special = [one for one in chosen if one["metadata"]["name"].endswith(part)]
            chosen = [one for one in chosen if one not in special]
            found[f"templates/{name}{part}.yaml"] = _template(special, f"and .Values.{value} ({guard})")
        found[f"templates/{name}.yaml"] = _template(chosen, guard)
    found.update(_objects(scoped))
    return {f"{CHART}/{name}": text for name, text in found.items()}


def _objects(scoped: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the templates of what is the same for operators of one namespace and of all."""
    kinds = {
        "ServiceAccount": "",
        "Deployment": "",
        "Service": "",
        "NetworkPolicy": ".Values.networkPolicy",
        "PodDisruptionBudget": "gt (int .Values.replicas) 1",
    }
    found = {}
    policies = []
    for one in scoped:
        kind = one["kind"]
        if kind.startswith("ValidatingAdmissionPolicy"):
            policies.append(one)
        elif kind in kinds:
            found[f"templates/{kind.lower()}.yaml"] = _template([one], kinds[kind])
    special = [
        one for one in policies if one["metadata"]["name"].endswith(("-exec", "-roles", "-rolebindings"))
    ]
    plain = [one for one in policies if one not in special]
    found["templates/admission-policies.yaml"] = _template(plain, POLICIES)
    found["templates/admission-policies-exec.yaml"] = _template(
        special, f"and .Values.execSpawn ({POLICIES})"
    )
    return found


def _template(objects: Iterable[object], guard: str) -> str:
    lines: list[str] = []
    skipped: str | None = None
    for line in text_of(objects).splitlines():
        text = line.lstrip()
        indent = line[: len(line) - len(text)]
        if skipped is not None and indent.startswith(skipped):
            continue
        skipped = None
        if text in OPTIONAL:
            condition, body = OPTIONAL[text]
            lines += [f"{indent}{{{{- {condition} }}}}", f"{indent}{body}", f"{indent}{{{{- end }}}}"]
        elif text == "resources:" and "kind: Deployment" in lines:
            lines += _value(indent, "resources")
            skipped = f"{indent} "
        else:
            lines.append(_filled(line))
            if text.startswith("image: "):
                lines.append(f"{indent}imagePullPolicy: {{{{ .Values.image.pullPolicy }}}}")
            elif text.startswith("serviceAccountName: "):
                lines += [part for name in PLACEMENT for part in _value(indent, name)]
    rendered = "".join(line + "\n" for line in lines)
    return f"{{{{- if {guard} }}}}\n{rendered}{{{{- end }}}}\n" if guard else rendered


def _value(indent: str, name: str) -> list[str]:
    """Return the lines of a field that is there where its value is."""
    if name == "priorityClassName":
        body = [f"{indent}{name}: {{{{ . }}}}"]
    else:
        body = [f"{indent}{name}:", f"{indent}  {{{{- toYaml . | nindent {len(indent) + 2} }}}}"]
    return [f"{indent}{{{{- with .Values.{name} }}}}", *body, f"{indent}{{{{- end }}}}"]


def _filled(line: str) -> str:
    for word, template in IN_CHART.items():
        line = re.sub(rf"\b{word}\b", lambda _, template=template: template, line)
    return line


if __name__ == "__main__":
    for path, text in files().items():
        (DEPLOY / path).parent.mkdir(parents=True, exist_ok=True)
        (DEPLOY / path).write_text(text, encoding="utf-8")
