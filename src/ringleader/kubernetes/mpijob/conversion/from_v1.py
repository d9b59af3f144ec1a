"""The spec of a v1alpha2 or v1 job becomes a v2beta1 spec: the same two kinds of Pods, other policies."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from ringleader.kubernetes.mpijob.conversion.conversion_notes import Changes
from ringleader.kubernetes.mpijob.conversion.old_specs import V1, MpiDistribution
from ringleader.kubernetes.mpijob.document_faults import ROOT, FieldPath

_SPEC = ROOT.field("spec")
_POLICY = _SPEC.field("runPolicy")
_REPLICAS = _SPEC.field("mpiReplicaSpecs")
_LAUNCHER, _WORKER = _REPLICAS.key("Launcher"), _REPLICAS.key("Worker")


def spec_of_v1(old: Mapping[str, Any], version: str, changes: Changes) -> dict[str, Any]:
    """Return the spec for v2beta1 of a spec that is right as one of its own version."""
    replicas = deepcopy(dict(old["mpiReplicaSpecs"]))
    spec: dict[str, Any] = {}
    if old.get("slotsPerWorker") is not None:
        spec["slotsPerWorker"] = old["slotsPerWorker"]
    policy = _run_policy(old, changes)
    if policy:
        spec["runPolicy"] = policy
    _distribution(old, spec, changes)
    spec["mpiReplicaSpecs"] = replicas
    _main_container(old.get("mainContainer"), replicas, changes)
    _launcher(replicas["Launcher"], version, spec, changes)
    if replicas.get("Worker") is not None:
        _worker(replicas["Worker"], version, changes)
    return spec


def _run_policy(old: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """Join the top-level policies and ``runPolicy``, each as the old controllers took them."""
    given = old.get("runPolicy") or {}
    policy = {name: deepcopy(value) for name, value in given.items() if value is not None}
    for name in ("backoffLimit", "activeDeadlineSeconds"):
        if old.get(name) is None:
            continue
        if name in policy:
            changes.add(_SPEC.field(name), f"dropped: runPolicy.{name} counted, and still does")
        else:
            policy[name] = old[name]
            changes.move(_SPEC.field(name), _POLICY.field(name))
    top, inner = old.get("cleanPodPolicy"), policy.get("cleanPodPolicy")
    if top is not None:
        if inner not in (None, top):
            changes.add(_POLICY.field("cleanPodPolicy"), f"{inner} is dropped: the top-level {top} counted")
        policy["cleanPodPolicy"] = top
        changes.move(_SPEC.field("cleanPodPolicy"), _POLICY.field("cleanPodPolicy"))
    elif inner is not None:
        changes.add(_POLICY.field("cleanPodPolicy"), f"{inner} counts now; old controllers passed it over")
    return policy


def _distribution(old: Mapping[str, Any], spec: dict[str, Any], changes: Changes) -> None:
    """``mpiDistribution`` has another name, and Intel MPI another word."""
    value = old.get("mpiDistribution")
    if value is not None:
        new = "Intel" if value == MpiDistribution.INTEL_MPI else value
        spec["mpiImplementation"] = new
        changes.move(_SPEC.field("mpiDistribution"), _SPEC.field("mpiImplementation"), f": {new}")


def _main_container(name: str | None, replicas: dict[str, Any], changes: Changes) -> None:
    """Put the container that ``mainContainer`` named first: v2beta1 takes the first one."""
    if not name:
        return
    here = _SPEC.field("mainContainer")
    for kind, one in replicas.items():
        containers = one["template"]["spec"]["containers"] if one else []
        names = [container["name"] for container in containers]
        if name not in names:
            if one:
                what = f"the {kind}'s template has no container {name}; its first one is taken"
                changes.add(here, what, is_lost=True)
        elif names[0] != name:
            containers.insert(0, containers.pop(names.index(name)))
            changes.add(here, f"{name} is now the first container of the {kind}'s template")
    changes.add(here, "dropped: v2beta1 always takes the first container")


def _launcher(launcher: dict[str, Any], version: str, spec: dict[str, Any], changes: Changes) -> None:
    policy, here = launcher.get("restartPolicy"), _LAUNCHER.field("restartPolicy")
    if version == V1:
        new = _restart_of_pod(policy)
        changes.add(
            _LAUNCHER, "was a bare Pod, is now a Job: tried again up to runPolicy.backoffLimit (6) times"
        )
        if _asks_for_gpu(launcher):
            spec["runLauncherAsWorker"] = True
            what = "true: the launcher asks for GPUs, which made v1 run ranks in it"
            changes.add(_SPEC.field("runLauncherAsWorker"), what)
    else:
        new = "Never" if policy == "Never" else "OnFailure"
    launcher["restartPolicy"] = new
    _note_restart(here, policy, new, changes)


def _worker(worker: dict[str, Any], version: str, changes: Changes) -> None:
    policy, here = worker.get("restartPolicy"), _WORKER.field("restartPolicy")
    if version == V1:
        new = _restart_of_pod(policy)
        _note_restart(here, policy, new, changes)
    else:
        new = policy if policy in ("Never", "OnFailure") else "OnFailure"
        said = f"{policy} was passed over" if policy else "was not given"
        changes.add(
            here, f"is {new}: {said}, a StatefulSet always restarts; v2beta1 knows Never and OnFailure"
        )
    worker["restartPolicy"] = new
    _note_worker_command(worker["template"], changes)


def _note_restart(here: FieldPath, policy: str | None, new: str, changes: Changes) -> None:
    if policy == "ExitCode":
        changes.add(here, f"ExitCode is now {new}: exit codes above 127 are not told apart", is_lost=True)
    elif policy and policy != new:
        changes.add(here, f"{policy} is now {new}")


def _note_worker_command(template: Mapping[str, Any], changes: Changes) -> None:
    """Say what the workers' first container runs now."""
    first = template["spec"]["containers"][0]
    here = _WORKER.fields("template", "spec", "containers").item(0).field("command")
    if first.get("command") or first.get("args"):
        changes.add(here, "runs as given; before v0.2.3 the controller put `sleep 365d` in its place")
    else:
        changes.add(here, "none: the controller chooses it; it was `sleep 365d`, with ssh it is sshd")


def _restart_of_pod(policy: str | None) -> str:
    """Return what a bare Pod of v1 had: Never by default, and for ExitCode."""
    return "OnFailure" if policy in ("OnFailure", "Always") else "Never"


def _asks_for_gpu(launcher: Mapping[str, Any]) -> bool:
    """Say whether any container's limits name a GPU, by the words that v1's controller looked for."""
    for container in launcher["template"]["spec"]["containers"]:
        limits = (container.get("resources") or {}).get("limits") or {}
        if any("gpu" in str(name) for name in limits):
            return True
    return False
