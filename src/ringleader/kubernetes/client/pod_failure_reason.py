"""How a Pod failed, in words, and the reasons for which a container waits. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.kubernetes.client.pod_view import PodView

PULL_BACKOFF = ("ImagePullBackOff", "ErrImagePull")
"""The kubelet says the one and the other by turns while it cannot pull an image."""
PULL = (*PULL_BACKOFF, "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
"""Reasons of a container that waits for its image."""
CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError")
"""Reasons of a container that cannot be made of what its Pod says."""
CRASH_LOOP = "CrashLoopBackOff"
"""Reason of a container that ended badly and is started again later."""

SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
    24: "SIGXCPU",
}
"""Linux numbers of the signals that end processes, which an exit code above 128 stands for."""


@dataclass(frozen=True, kw_only=True)
class PodFailure:
    """One Pod that failed, or one of its containers that was started again."""

    at: str
    """When, as RFC 3339; empty where the cluster does not say."""
    pod: str
    role: str
    container: str = ""
    """Empty where the Pod failed as a whole: evicted, rejected by its node."""
    how: str
    """``exit code 137 (OOMKilled)``, ``Evicted: the node was low on memory``."""
    word: str = ""
    """One word for the reason of a condition: ``OOMKilled``, ``Error``; may be empty."""
    was_restarted: bool = False
    """The container runs anew: its log is that of the run before."""
    log: str = ""
    """The last lines of its log; empty where there is none."""

    @property
    def sentence(self) -> str:
        """Who failed and how, in one line."""
        place = f"container {self.container}: " if self.container else ""
        return f"{self.role} {self.pod}: {place}{self.how}"


def failure_of(pod: PodView) -> PodFailure | None:
    """Return how a Pod failed, or how one of its containers did before it was started again, or ``None``."""
    if pod.phase == "Failed":
        bad = [one for one in pod.containers if one.state == "terminated" and (one.exit_code or one.signal)]
        if not bad:
            how = ": ".join(part for part in (pod.reason, pod.message) if part) or "failed"
            return PodFailure(at="", pod=pod.name, role=pod.role, how=how, word=pod.reason)
        one = min(bad, key=lambda one: one.finished_at)
        return PodFailure(
            at=one.finished_at,
            pod=pod.name,
            role=pod.role,
            container=one.name,
            how=ending(one.exit_code, one.signal, pod.reason or one.reason, pod.message or one.message),
            word=pod.reason or one.reason,
        )
    again = [one for one in pod.containers if one.restarts and one.last_exit_code]
    if pod.phase not in ("Pending", "Running") or not again:
        return None
    one = min(again, key=lambda one: one.last_finished_at)
    return PodFailure(
        at=one.last_finished_at,
        pod=pod.name,
        role=pod.role,
        container=one.name,
        how=ending(one.last_exit_code, None, one.last_reason),
        word=one.last_reason,
        was_restarted=True,
    )


def ending(code: int | None, signal: int | None, reason: str, message: str = "") -> str:
    """Return how a container ended: ``exit code 137 (SIGKILL, OOMKilled)``."""
    number = signal or (code - 128 if code is not None and 128 < code < 160 else None)
    words = [word for word in (SIGNALS.get(number or 0), reason) if word and word != "Error"]
    text = f"exit code {code}" if code is not None else f"signal {number}"
    if words:
        text += f" ({', '.join(words)})"
    return f"{text}: {message}" if message else text
