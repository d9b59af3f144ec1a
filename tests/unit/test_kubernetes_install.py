"""What installs the operator: the objects, their rights, and the files in deploy/ that are made of them."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from ringleader.cli.main import ringleader
from ringleader.errors import RequestError
from ringleader.mpijob.reading import read
from ringleader.render.kubernetes import spawn
from ringleader.render.kubernetes.install import Installation, check, manifests

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/ringleader-operator"
WISHES = [
    Installation(image="i:1"),
    Installation(image="i:1", replicas=3, gang="volcano", cluster_domain="k8s.example"),
    Installation(image="i:1", namespace="team", scope="team", has_crd=False, has_namespace=False),
    Installation(image="i:1", namespace="ops", scope="team", has_exec_spawn=False),
]
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
    kind = {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    job = read(
        {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": {"name": "train", "annotations": {"ringleader/spawn": "exec"}},
            "spec": {"mpiReplicaSpecs": {"Launcher": kind, "Worker": {"replicas": 1, **kind}}},
        }
    )
    rights = rights_of(manifests(WISHES[0]))
    given = {
        (one, verb)
        for rule in spawn.role(job)["rules"]
        for one in rule["resources"]
        for verb in rule["verbs"]
    }
    assert given
    for resource, verb in given:
        assert ("ClusterRole", resource, verb) in rights, "nobody can give away what he has not"
    without = {resource for _, resource, _ in rights_of(manifests(WISHES[3]))}
    assert not without & {"pods/exec", "serviceaccounts", "roles", "rolebindings"}


def test_the_operator_may_do_all_that_it_asks_for_at_its_start() -> None:
    from ringleader.controller.rights import LEASE_RIGHTS, RIGHTS

    for wish in WISHES:
        allowed = {(resource, verb) for _, resource, verb in rights_of(manifests(wish))}
        for right in (*RIGHTS, *LEASE_RIGHTS):
            name = f"{right.resource.plural}/{right.subresource}".rstrip("/")
            assert (name, right.verb) in allowed, str(right)


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
    ]
    assert container["env"] == [{"name": "RINGLEADER_OPERATOR_IMAGE", "value": "i:1"}]
    probes = (container["livenessProbe"], container["readinessProbe"])
    assert [probe["httpGet"]["path"] for probe in probes] == ["/healthz", "/readyz"]
    assert objects["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    assert "PodDisruptionBudget" not in {one["kind"] for one in manifests(WISHES[0])}


def test_every_argument_is_one_that_the_operator_knows() -> None:
    from ringleader.cli.operator_run import OPTIONS

    known = {word for option in OPTIONS for word in (*option.opts, *option.secondary_opts)}
    variables = {getattr(option, "envvar", None) for option in OPTIONS}
    for wish in WISHES:
        objects = {one["kind"]: one for one in manifests(wish)}
        container = objects["Deployment"]["spec"]["template"]["spec"]["containers"][0]
        assert {word.partition("=")[0] for word in container["args"]} <= known
        assert {one["name"] for one in container["env"]} <= variables


def test_everything_wrong_at_once() -> None:
    with pytest.raises(RequestError) as raised:
        check(Installation(image="a b", namespace="A", scope="b_c", replicas=0))
    assert [fault.where for fault in raised.value.faults] == [
        "--install-in",
        "--namespace",
        "--image",
        "--replicas",
    ]


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


def test_the_files_in_deploy_are_made_of_the_builders() -> None:
    made = runpy.run_path(str(ROOT / "scripts/deploy_files.py"))["files"]()
    for path, text in made.items():
        assert (ROOT / "deploy" / path).read_text(encoding="utf-8") == text, (
            "renew them: python scripts/deploy_files.py"
        )
    kept = {path.relative_to(ROOT / "deploy").as_posix() for path in (ROOT / "deploy").rglob("*.yaml")}
    assert kept == set(made)


def said(*argv: str) -> list[dict[str, Any]]:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
def test_kustomize_builds_the_base_and_an_overlay() -> None:
    version = runpy.run_path(str(ROOT / "scripts/deploy_files.py"))["IMAGE"]
    base = said("kubectl", "kustomize", str(ROOT / "deploy/kustomize/base"))
    assert by_name(base) == by_name(manifests(Installation(image=version)))
    overlay = said("kubectl", "kustomize", str(ROOT / "deploy/kustomize/overlay"))
    wanted = manifests(Installation(image=f"registry.example.com/{version}"))
    assert by_name(overlay) == by_name(wanted)


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not here")
@pytest.mark.parametrize(
    ("words", "wish"),
    [
        ([], Installation(image="i:1", namespace="ops", has_crd=False, has_namespace=False)),
        (
            ["scope=team", "replicas=2", "gangScheduling=volcano", "clusterDomain=d", "execSpawn=false"],
            Installation(
                image="i:1",
                namespace="ops",
                scope="team",
                replicas=2,
                gang="volcano",
                cluster_domain="d",
                has_exec_spawn=False,
                has_crd=False,
                has_namespace=False,
            ),
        ),
    ],
)
def test_helm_renders_the_same_objects(words: list[str], wish: Installation) -> None:
    values = [part for word in ["image.repository=i", "image.tag=1", *words] for part in ("--set", word)]
    found = by_name(said("helm", "template", "r", str(CHART), "--namespace", "ops", *values))
    container = found["Deployment", "ringleader-operator"]["spec"]["template"]["spec"]["containers"][0]
    assert container.pop("imagePullPolicy") == "IfNotPresent"
    assert found == by_name(manifests(wish))
