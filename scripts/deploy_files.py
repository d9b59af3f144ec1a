"""Write deploy/kustomize and deploy/helm from the builders (``python scripts/deploy_files.py``).

The objects stand once, in ``ringleader.render.kubernetes.install``; a test compares these files with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ringleader import __version__
from ringleader.mpijob.crd import crd
from ringleader.mpijob.yaml_text import text_of
from ringleader.render.kubernetes.install import NAME, Installation, manifests

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
REPOSITORY = "ringleader-operator"
IMAGE = f"{REPOSITORY}:{__version__}"
BASE, OVERLAY, CHART = "kustomize/base", "kustomize/overlay", f"helm/{NAME}"

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
images:
- name: {REPOSITORY}
  newName: registry.example.com/{REPOSITORY}
  newTag: {__version__}
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
# Image that deploy/operator/Dockerfile makes.
image:
  repository: {REPOSITORY}
  # Empty: the chart's appVersion.
  tag: ""
  pullPolicy: IfNotPresent
# The one namespace whose jobs it looks after; empty: all namespaces.
scope: ""
# Gang scheduler of jobs that name none: volcano, or the name of a scheduler with coscheduling.
gangScheduling: ""
# End of host names, such as cluster.local; empty: they end in .svc.
clusterDomain: ""
# Operators, one of which works.
replicas: 1
# Rights for jobs with the annotation ringleader/spawn: exec.
execSpawn: true
"""
IN_CHART = {
    "the-namespace": "{{ .Release.Namespace }}",
    "the-scope": "{{ .Values.scope }}",
    "the-image": '"{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"',
    "4242": "{{ .Values.replicas }}",
}
"""What a chart's user says → where it stands in a template."""
OPTIONAL = {
    "--namespace=the-scope": "scope",
    "--gang-scheduling=the-gang": "gangScheduling",
    "--cluster-domain=the-domain": "clusterDomain",
}
"""Arguments that are there only where the value is given."""


def files() -> dict[str, str]:
    """Return every generated file: path below deploy/ → text."""
    return {**_kustomize(), **_chart()}


def _kustomize() -> dict[str, str]:
    objects = manifests(Installation(image=IMAGE, has_crd=False))
    listed = ["crd.yaml", "operator.yaml"]
    return {
        f"{BASE}/crd.yaml": text_of([crd()]),
        f"{BASE}/operator.yaml": text_of(objects),
        f"{BASE}/kustomization.yaml": text_of(
            [{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": listed}]
        ),
        f"{OVERLAY}/kustomization.yaml": OVERLAY_TEXT,
    }


def _chart() -> dict[str, str]:
    wish = Installation(
        image="the-image",
        namespace="the-namespace",
        gang="the-gang",
        cluster_domain="the-domain",
        replicas=4242,
        has_crd=False,
        has_namespace=False,
    )
    everywhere, scoped = manifests(wish), manifests(_scoped(wish))
    rights = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    found = {"Chart.yaml": CHART_TEXT, "values.yaml": VALUES_TEXT, "crds/mpijobs.yaml": text_of([crd()])}
    for name, objects, guard in (
        ("cluster-rights", everywhere, "not .Values.scope"),
        ("namespace-rights", scoped, ".Values.scope"),
    ):
        chosen = [one for one in objects if one["kind"] in rights]
        plain = [one for one in chosen if not one["metadata"]["name"].endswith("-exec")]
        execs = [one for one in chosen if one not in plain]
        found[f"templates/{name}.yaml"] = _template(plain, guard)
        found[f"templates/{name}-exec.yaml"] = _template(execs, f"and .Values.execSpawn ({guard})")
    kinds = {
        "ServiceAccount": "",
        "Deployment": "",
        "Service": "",
        "PodDisruptionBudget": "gt (int .Values.replicas) 1",
    }
    for one in scoped:
        if one["kind"] in kinds:
            found[f"templates/{one['kind'].lower()}.yaml"] = _template([one], kinds[one["kind"]])
    return {f"{CHART}/{name}": text for name, text in found.items()}


def _scoped(wish: Installation) -> Installation:
    return Installation(**{**vars(wish), "scope": "the-scope"})


def _template(objects: Iterable[object], guard: str) -> str:
    lines = []
    for line in text_of(objects).splitlines():
        optional = next((word for word in OPTIONAL if line.strip() == f"- {word}"), None)
        if optional is not None:
            indent = line[: line.index("-")]
            option = optional.partition("=")[0]
            lines += [f"{indent}{{{{- with .Values.{OPTIONAL[optional]} }}}}"]
            lines += [f"{indent}- {option}={{{{ . }}}}", f"{indent}{{{{- end }}}}"]
            continue
        for word, template in IN_CHART.items():
            line = re.sub(rf"\b{word}\b", lambda _, template=template: template, line)
        lines.append(line)
        if line.strip().startswith("image: "):
            lines.append(f"{line[: line.index('image')]}imagePullPolicy: {{{{ .Values.image.pullPolicy }}}}")
    text = "".join(line + "\n" for line in lines)
    return f"{{{{- if {guard} }}}}\n{text}{{{{- end }}}}\n" if guard else text


if __name__ == "__main__":
    for path, text in files().items():
        (DEPLOY / path).parent.mkdir(parents=True, exist_ok=True)
        (DEPLOY / path).write_text(text, encoding="utf-8")
