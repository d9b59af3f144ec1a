"""What installs the operator: the objects, their rights, and the files in deploy/ that are made of them."""

import importlib.util
import json
import runpy
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner
from tests.mpijobs import mpijob

from ringleader.cli.main import ringleader
from ringleader.cli.operator import OperatorOptions, run_command, settings_of, terms_of
from ringleader.cli.typed_command import options_of
from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob.parser import read
from ringleader.kubernetes.objects import exec_spawn, operator_admission_policy
from ringleader.kubernetes.objects.operator_manifests import Installation, check, manifests
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.operator.runtime.leader_election import lease_name

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/ringleader-operator"
FULL = Installation(
    image="i:1",
    replicas=3,
    gang="volcano",
    cluster_domain="k8s.example",
    wait_timeout=60,
    has_exec_spawn=True,
    has_log_tails=True,
)
WISHES = [
    Installation(image="i:1"),
    FULL,
    Installation(image="i:1", namespace="team", scope="team", has_crd=False, has_namespace=False,
     has_admission_policy=False),
    Installation(image="i:1", namespace="ops", scope="team", has_network_policy=False),
]  # fmt: skip
Rights = set[tuple[str, str, str]]


def rights_of(objects: list[dict[str, Any]], kinds: tuple[str, ...] = ("Role", "ClusterRole")) -> Rights:
    """(kind, resource, verb) of all that the operator's own roles allow."""
    return {
        (one["kind"], resource, verb)
        for one in objects
        if one["kind"] in kinds and one["metadata"]["name"].startswith("ringleader-operator")
        for rule in one["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("version", ["1.29", "1.36"])
def test_kubernetes_takes_every_object(wish: Installation, version: str) -> None:
    for one in manifests(wish):
        if one["apiVersion"] == operator_admission_policy.API and version < operator_admission_policy.SINCE:
            continue
        kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize("wish", WISHES)
def test_no_rule_lists_or_watches_secrets_and_config_maps(wish: Installation) -> None:
    rights = rights_of(manifests(wish))
    for resource in ("secrets", "configmaps"):
        assert {verb for _, one, verb in rights if one == resource} == {"get", "create", "patch"}
    assert not [one for one in rights if "*" in one]


def test_an_operator_of_one_namespace_has_no_right_beyond_it() -> None:
    objects = manifests(WISHES[2])
    assert {one["metadata"].get("namespace") for one in objects} == {"team"}
    assert not [one for one in objects if one["kind"].startswith("Cluster")]


def test_exec_takes_what_a_jobs_role_gives_and_nothing_without_it() -> None:
    job = read(mpijob(metadata={"annotations": {"ringleader/spawn": "exec"}}))
    rights = rights_of(manifests(FULL))
    given = {
        (one, verb)
        for rule in exec_spawn.role(job, ["train-worker-0"])["rules"]
        for one in rule["resources"]
        for verb in rule["verbs"]
    }
    assert given
    for resource, verb in given:
        assert ("ClusterRole", resource, verb) in rights, "nobody can give away what he has not"
    for wish in (WISHES[0], WISHES[2], WISHES[3]):
        without = {resource for _, resource, _ in rights_of(manifests(wish))}
        assert not without & {"pods/exec", "pods/log", "serviceaccounts", "roles", "rolebindings"}


def test_the_operator_may_do_all_that_it_asks_for_at_its_start() -> None:
    from ringleader.kubernetes.operator.runtime.rbac_check import LEASE_RIGHTS, required_rights

    for wish in WISHES:
        allowed = {(resource, verb) for _, resource, verb in rights_of(manifests(wish))}
        settings = OperatorSettings(has_exec_spawn=wish.has_exec_spawn, has_log_tails=wish.has_log_tails)
        for right in (*required_rights(settings), *LEASE_RIGHTS):
            assert (right.resource, right.verb) in allowed, str(right)


def test_the_deployment() -> None:
    objects = {one["kind"]: one for one in manifests(WISHES[1])}
    spec = objects["Deployment"]["spec"]
    assert spec["replicas"] == 3
    container = spec["template"]["spec"]["containers"][0]
    assert container["args"] == [
        "--port=8080",
        "--log-format=json",
        "--gang-scheduling=volcano",
        "--cluster-domain=k8s.example",
        "--wait-timeout=60",
        "--exec-spawn",
        "--log-tails",
    ]
    assert container["env"] == [{"name": "RINGLEADER_OPERATOR_IMAGE", "value": "i:1"}]
    probes = (container["livenessProbe"], container["readinessProbe"])
    assert [probe["httpGet"]["path"] for probe in probes] == ["/healthz", "/readyz"]
    assert objects["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    assert "PodDisruptionBudget" not in {one["kind"] for one in manifests(WISHES[0])}


def test_every_argument_is_one_that_the_operator_knows() -> None:
    options = [one for one in run_command.params if isinstance(one, click.Option)]
    known = {word for option in options for word in (*option.opts, *option.secondary_opts)}
    variables = {getattr(option, "envvar", None) for option in options}
    for wish in WISHES:
        objects = {one["kind"]: one for one in manifests(wish)}
        container = objects["Deployment"]["spec"]["template"]["spec"]["containers"][0]
        assert {word.partition("=")[0] for word in container["args"]} <= known
        assert {one["name"] for one in container["env"]} <= variables


def test_everything_wrong_at_once() -> None:
    with pytest.raises(RequestError) as raised:
        check(Installation(image="a b", namespace="A", scope="b_c", replicas=0, wait_timeout=0))
    assert [fault.where for fault in raised.value.faults] == [
        "--install-in",
        "--namespace",
        "--image",
        "--replicas",
        "--wait-timeout",
    ]


def test_operators_of_two_namespaces_lie_side_by_side() -> None:
    """One must not replace the other, select its Pods, or take its Lease."""
    alone = manifests(Installation(image="i:1", namespace="ops", scope="ops"))
    first, second = (manifests(Installation(image="i:1", namespace="ops", scope=one)) for one in "ab")
    same = {("Namespace", "ops"), ("CustomResourceDefinition", "mpijobs.kubeflow.org")}
    found = [by_name(one).keys() - same for one in (alone, first, second)]
    assert not (found[0] & found[1] or found[0] & found[2] or found[1] & found[2])
    selectors = [
        by_name(one)["Deployment", name]["spec"]["selector"]["matchLabels"]
        for one, name in ((first, "ringleader-operator-a"), (second, "ringleader-operator-b"))
    ]
    assert selectors[0] != selectors[1]
    assert lease_name("", "ops") == lease_name("ops", "ops") == "mpi-operator"
    assert lease_name("a", "ops") != lease_name("b", "ops") != "mpi-operator"
    terms = terms_of(run_options("--namespace", "a", "--lock-namespace", "ops"), {}, "default")
    assert (terms.lease.namespace, terms.lease.name) == ("ops", "mpi-operator-a")
    with pytest.raises(RequestError, match="longer than"):
        check(Installation(image="i:1", namespace="ops", scope="a" * 36))
    assert not check(Installation(image="i:1", namespace="ops", scope="a" * 35))


def run_options(*words: str) -> OperatorOptions:
    return options_of(OperatorOptions, run_command.make_context("run", list(words)).params)


def test_rights_beyond_ssh_jobs_and_logs_are_asked_for() -> None:
    assert not settings_of(run_options(), "").has_exec_spawn
    assert not settings_of(run_options(), "").has_log_tails
    settings = settings_of(run_options("--exec-spawn", "--log-tails"), "")
    assert settings.has_exec_spawn and settings.has_log_tails


def test_who_may_scale_jobs() -> None:
    roles = by_name(manifests(WISHES[0]))
    scale = {
        level: {
            verb
            for rule in roles["ClusterRole", f"ringleader-mpijobs-{level}"]["rules"]
            if "mpijobs/scale" in rule["resources"]
            for verb in rule["verbs"]
        }
        for level in ("view", "edit")
    }
    assert scale == {"view": {"get"}, "edit": {"get", "update", "patch"}}


def test_who_reaches_the_metrics() -> None:
    objects = by_name(manifests(FULL))
    policy = objects["NetworkPolicy", "ringleader-operator-metrics"]["spec"]
    pods = objects["Deployment", "ringleader-operator"]["spec"]["template"]
    assert policy["podSelector"]["matchLabels"].items() <= pods["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress"]
    (ingress,) = policy["ingress"]
    names = [port["name"] for port in pods["spec"]["containers"][0]["ports"]]
    assert [one["port"] for one in ingress["ports"]] == names
    assert ingress["from"] == [
        {"podSelector": {}},
        {"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}},
    ]


def test_policies_are_left_out_where_they_cannot_be() -> None:
    for words, there in (
        ([], True),
        (["--no-admission-policy"], False),
        (["--namespace", "team"], False),
        (["--namespace", "team", "--admission-policy"], True),
        (["--namespace", "team", "--exec-spawn"], True),
        (["--namespace", "team", "--exec-spawn", "--no-admission-policy"], False),
    ):
        done = CliRunner().invoke(ringleader, ["operator", "manifests", "--image", "i:1", "--json", *words])
        kinds = {one["kind"] for one in json.loads(done.stdout)["items"]}
        assert ("ValidatingAdmissionPolicy" in kinds) is there, words


def test_the_command_prints_what_kubectl_takes() -> None:
    done = CliRunner().invoke(ringleader, ["operator", "manifests", "--image", "i:1"])
    assert done.exit_code == 0, done.output
    assert list(yaml.safe_load_all(done.stdout)) == manifests(WISHES[0])
    words = ["operator", "manifests", "--namespace", "team", "--image", "i:1", "--json"]
    done = CliRunner().invoke(ringleader, words)
    assert json.loads(done.stdout)["items"] == manifests(WISHES[2])


@pytest.mark.parametrize(
    "words", [["--namespace", "a", "--cluster-scope"], ["--namespace", ""], ["--image", ""]]
)
def test_requests_that_make_no_sense(words: list[str]) -> None:
    done = CliRunner().invoke(ringleader, ["operator", "manifests", *words])
    assert isinstance(done.exception, RequestError) or done.exit_code == 2


BY_HAND = ("trainer", "monitoring")


def test_the_files_in_deploy_are_made_of_the_builders() -> None:
    made = runpy.run_path(str(ROOT / "scripts/deploy_files.py"))["files"]()
    for path, text in made.items():
        assert (ROOT / "deploy" / path).read_text(encoding="utf-8") == text, (
            "renew them: python scripts/deploy_files.py"
        )
    kept = {
        path.relative_to(ROOT / "deploy").as_posix()
        for path in (ROOT / "deploy").rglob("*")
        if path.suffix in (".yaml", ".tpl") and path.parent.name not in BY_HAND
    }
    assert kept == set(made)


def said(*argv: str) -> list[dict[str, Any]]:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
@pytest.mark.process
def test_kustomize_builds_the_base_and_an_overlay() -> None:
    version = runpy.run_path(str(ROOT / "scripts/deploy_files.py"))["IMAGE"]
    base = said("kubectl", "kustomize", str(ROOT / "deploy/kustomize/base"))
    assert by_name(base) == by_name(manifests(Installation(image=version)))
    overlay = said("kubectl", "kustomize", str(ROOT / "deploy/kustomize/overlay"))
    wanted = manifests(Installation(image=f"registry.example.com/{version}"))
    assert by_name(overlay) == by_name(wanted)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
@pytest.mark.process
def test_kustomize_builds_what_is_written_by_hand() -> None:
    (runtime,) = said("kubectl", "kustomize", str(ROOT / "deploy/trainer"))
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    pods = [job["template"]["spec"]["template"]["spec"] for job in jobs]
    assert [pod["containers"][0]["image"] for pod in pods] == ["example.org/team/train:1"] * 2
    board, *others = said("kubectl", "kustomize", str(ROOT / "deploy/monitoring"))
    assert board["metadata"]["labels"] == {"grafana_dashboard": "1"} and "dashboard.json" in board["data"]
    assert [one["kind"] for one in others] == ["PrometheusRule", "ServiceMonitor"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
@pytest.mark.process
def test_kustomize_components_switch_on_what_is_off(tmp_path: Path) -> None:
    version = runpy.run_path(str(ROOT / "scripts/deploy_files.py"))["IMAGE"]
    shutil.copytree(ROOT / "deploy/kustomize", tmp_path / "kustomize")
    mine = tmp_path / "kustomize/mine"
    mine.mkdir()
    text = "resources: [../base]\ncomponents: [../components/exec-spawn, ../components/log-tails]\n"
    (mine / "kustomization.yaml").write_text(text)
    wanted = manifests(Installation(image=version, has_exec_spawn=True, has_log_tails=True))
    assert by_name(said("kubectl", "kustomize", str(mine))) == by_name(wanted)


HELM = """
import json, sys
from helm_python import Chart
print(json.dumps(Chart.load(sys.argv[1]).render(json.loads(sys.argv[2]), name="r", namespace="ops")))
"""
"""In its own process: Helm's library brings Go's runtime and its signal handlers."""
HAS_HELM = importlib.util.find_spec("helm_python") is not None
needs_helm = pytest.mark.skipif(not HAS_HELM, reason="helm-python-sdk is not here")


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    """What Helm itself makes of the chart."""
    words = [sys.executable, "-c", HELM, str(CHART), json.dumps(values)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    texts = json.loads(done.stdout).values()
    return [one for text in texts for one in yaml.safe_load_all(text) if isinstance(one, dict)]


CHARTED = Installation(image="i:1", namespace="ops", has_crd=False, has_namespace=False)
PLACED = {
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"role": "system"},
    "tolerations": [{"key": "system", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "priorityClassName": "system-cluster-critical",
}


@pytest.mark.process
@needs_helm
@pytest.mark.parametrize(
    ("values", "wish"),
    [
        ({}, CHARTED),
        ({"scope": "ops"}, replace(CHARTED, scope="ops", has_admission_policy=False)),
        ({"scope": "team", "admissionPolicy": True, "networkPolicy": False, "execSpawn": True},
         replace(CHARTED, scope="team", has_network_policy=False, has_exec_spawn=True)),
        ({"replicas": 2, "gangScheduling": "volcano", "clusterDomain": "d", "waitTimeout": 60,
         "execSpawn": True, "logTails": True}, replace(CHARTED, replicas=2, gang="volcano",
         cluster_domain="d", wait_timeout=60, has_exec_spawn=True, has_log_tails=True)),
        ({"admissionPolicy": False}, replace(CHARTED, has_admission_policy=False)),
        ({"scope": "ops", "execSpawn": True}, replace(CHARTED, scope="ops", has_exec_spawn=True)),
    ],
)  # fmt: skip
def test_helm_renders_the_same_objects(values: dict[str, Any], wish: Installation) -> None:
    found = by_name(rendered({"image": {"repository": "i", "tag": "1"}, **values}))
    deployment = found["Deployment", wish.name]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container.pop("imagePullPolicy") == "IfNotPresent"
    assert found == by_name(manifests(wish))


@pytest.mark.process
@needs_helm
def test_a_charts_user_says_where_the_operator_runs() -> None:
    resources = {"limits": {"memory": "1Gi"}}
    found = by_name(rendered({**PLACED, "resources": resources}))
    deployment = found["Deployment", "ringleader-operator"]
    spec = deployment["spec"]["template"]["spec"]
    assert {name: spec[name] for name in PLACED} == PLACED
    # Helm merges maps of values.
    assert spec["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    kubernetes_validate.validate(deployment, "1.36", strict=True)


@pytest.mark.process
@needs_helm
def test_a_digest_counts_instead_of_a_tag() -> None:
    digest = "sha256:" + "ab" * 32
    found = by_name(rendered({"image": {"repository": "r.example.org/i", "tag": "1", "digest": digest}}))
    container = found["Deployment", "ringleader-operator"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"r.example.org/i@{digest}"
    assert {"name": "RINGLEADER_OPERATOR_IMAGE", "value": container["image"]} in container["env"]
