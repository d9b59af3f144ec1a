"""What a cluster's messages mean and what to do about them: a table. Pure."""

from __future__ import annotations

import re

from ringleader.kubernetes.mpijob.quantities import value

_HINTS: tuple[tuple[str, str], ...] = (
    (
        r"must specify [\w,. /]+ for|failed quota",
        "the quota wants requests and limits: --cpu, --memory, --launcher-cpu, --launcher-memory",
    ),
    (r"maximum .* per (Container|Pod)", "a LimitRange caps it: kubectl describe limitrange; ask for less"),
    (r"no PriorityClass with name", "kubectl get priorityclasses; then --priority-class one of them"),
    (r"serviceaccount .*not found|service account .*not found", "kubectl create serviceaccount, or another"),
    (
        r"violates PodSecurity",
        "the namespace's Pod security level forbids it: fewer rights, or another level",
    ),
    (
        r"admission webhook|ValidatingAdmissionPolicy",
        "a policy of this cluster refuses the Pods; its message says what it wants",
    ),
    (
        r"persistentvolumeclaim \"[^\"]*\" (is )?not found",
        "kubectl get pvc; create the claim, or correct --claim",
    ),
    (r"unbound immediate PersistentVolumeClaims", "the claim has no volume yet: kubectl describe pvc"),
    (r"volume node affinity conflict", "the claim's volume lies elsewhere than nodes with enough room"),
    (
        r"Insufficient ([\w.-]+/[\w.-]*gpu\w*|\S*gpu\S*)",
        "wait for GPUs, or ask for fewer on each worker; kubectl describe nodes shows how many there are",
    ),
    (r"OOMKilled", "raise its limit: --memory; the launcher's: --launcher-memory"),
    (r"Insufficient (cpu|memory|ephemeral-storage)", "wait, or ask for less: --cpu, --memory"),
    (r"Insufficient (\S+)", "wait until nodes have it free, or ask for less"),
    (r"untolerated taint", "if the Pods may run there: --toleration KEY; else wait for other nodes"),
    (
        r"didn't match Pod's node affinity|didn't match node selector",
        "no node has these labels: kubectl get nodes --show-labels, then --node-selector",
    ),
    (r"Too many pods", "the nodes are full of Pods: wait, or add nodes"),
    (r"no nodes available", "the cluster has no node at all"),
    (r"unschedulable: pod group|pod group is not ready|minAvailable", "the group waits until all fit"),
    (
        r"toomanyrequests|rate limit",
        "the registry limits pulls: log in with --image-pull-secret, or mirror it",
    ),
    (
        r"unauthorized|authentication required|denied|no basic auth|403 Forbidden",
        "the registry wants a login: kubectl create secret docker-registry, then --image-pull-secret",
    ),
    (r"not found|manifest unknown|name unknown|does not exist", "check the image's name and tag: --image"),
    (r"no such host|i/o timeout|connection refused|dial tcp", "the node does not reach the registry"),
    (r"no match for platform|exec format error", "the image is for another processor than the node's"),
)
"""Pattern in a message → what to do. The first that fits counts."""

_NO_PROGRAM = re.compile(r"executable file not found|no such file or directory")
_NOT_FOUND = re.compile(r"(?m)^(?:\S*sh: )?(?:.*: )?(\S+): (?:command )?not found$")
"""What sh and bash print where they find no program: ``sh: 1: exec: trian: not found``."""
_FAILURE = re.compile(r"(launcher|worker) \S+: container \S+: exit code (\d+)")
"""How an operator's condition names the first failure; see ``PodFailure.sentence``."""
_NO_OBJECT = re.compile(r"(secret|configmap) \"?([^\"\s]+)\"? not found|couldn't find key", re.IGNORECASE)


_AMOUNTS = re.compile(r"exceeded quota: [^,]+, requested: (.*?), used: .*?, limited: (.*)")


def of_quota(message: str) -> str:
    """Return what a quota that refused a Pod speaks of: it has no room left, or could never have any."""
    if found := _AMOUNTS.search(message):
        wanted, limits = (dict(re.findall(r"([^,=\s]+)=([\w.]+)", part)) for part in found.groups())
        for name in wanted.keys() & limits.keys():
            if value(wanted[name]) > value(limits[name]):
                over = f"one request of {name}={wanted[name]} exceeds the namespace's quota of {limits[name]}"
                return f"{over}, and waiting does not help: ask for less, or for a larger quota"
    return (
        "the namespace's quota is used up: kubectl describe quota; free some, ask for less, or ask for more"
    )


def hint(message: str) -> str:
    """Return what to do about a message of the scheduler, the API server or the kubelet; or nothing."""
    if "exceeded quota" in message:
        return of_quota(message)
    return next((advice for pattern, advice in _HINTS if re.search(pattern, message, re.IGNORECASE)), "")


def of_config(message: str) -> str:
    """Return what to do where a container cannot be made."""
    if _NO_OBJECT.search(message):
        return "create what is missing, or correct --secret-env, --volume"
    if _NO_PROGRAM.search(message):
        return "the image lacks the program: it needs a shell, mpirun in the launcher, sshd or --spawn exec"
    return hint(message)


def of_exit(code: int | None, reason: str, *, role: str = "", log: str = "") -> str:
    """Return what the end of a launcher's or a worker's container means; ``log``: the end of its log."""
    if reason == "OOMKilled":
        option = "--launcher-memory (with ranks in it: --memory)" if role == "launcher" else "--memory"
        return f"it used more memory than its limit: {option}"
    if reason == "DeadlineExceeded":
        return "it ran longer than its Pod's activeDeadlineSeconds"
    missing = _NOT_FOUND.search(log) if code == 127 else None
    return {
        126: "the command is not executable in the image",
        127: f"the image has no command {missing[1]}: correct the command, or --image"
        if missing
        else "the command is not in the image; its log says which: ringleader logs",
        137: "it was killed: out of memory, or evicted; see the node's events",
        139: "it crashed (SIGSEGV)",
    }.get(code or 0, "")


def of_failure(message: str, *, log: str) -> str:
    """Return what to do about the failure that a job's condition names; ``log``: the launcher's."""
    found = _FAILURE.search(message)
    if found is None:
        return hint(message) if "quota" in message or "image" in message.lower() else ""
    reason = "OOMKilled" if "OOMKilled" in message else ""
    return of_exit(
        int(found[2]), reason, role=found[1], log=(log if found[1] == "launcher" else "") or message
    )


def short(message: str, longest: int = 300) -> str:
    """Return a message on one line, cut where it is very long."""
    line = " ".join(message.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
