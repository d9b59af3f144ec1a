"""What a cluster's own controllers do to Pods and Jobs, small: how it is set, what Pods ask for.

The Job controller is ``simulated_job_controller``, scheduler and kubelet are ``simulated_kubelet``. A Pod's
behaviour comes from annotations, or step by step from the test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tests.kube.fake.store import Document

PREFIX = "fake.test/"
STAY_PENDING = f"{PREFIX}stay-pending"
"""No node takes the Pod; the value is the scheduler's message."""
WAITING_REASON = f"{PREFIX}waiting-reason"
"""The first container never starts: ``ImagePullBackOff`` …"""
WAITING_MESSAGE = f"{PREFIX}waiting-message"
NOT_READY = f"{PREFIX}not-ready"
"""``true``: the Pod runs and is never ready."""
READY_SECONDS = f"{PREFIX}ready-seconds"
"""Seconds from its start until it is ready."""
RUN_SECONDS = f"{PREFIX}run-seconds"
"""Seconds that its first container runs. Without it and without an exit code: until somebody stops it."""
EXIT_CODE = f"{PREFIX}exit-code"
"""How it ends; several with commas: one for each attempt, the last for all that follow."""
REASON = f"{PREFIX}reason"
"""Reason of a failed container: ``OOMKilled`` …"""
LOG = f"{PREFIX}log"
"""What it says when it starts."""
INIT_EXIT_CODE = f"{PREFIX}init-exit-code"
"""How its first init container ends; without it: well, and at once."""


@dataclass(frozen=True, kw_only=True)
class StandInOptions:
    """How the stand-in behaves."""

    kubelet: Literal["automatic", "driven"] = "automatic"
    """``driven``: Pods do nothing by themselves; the test moves them."""
    jobs: bool = True
    """The Job controller works."""
    start_seconds: float = 0.0
    """From a Pod's creation to its start."""
    stop_seconds: float = 0.0
    """From a Pod's deletion until it has gone."""
    retry_seconds: float = 0.02
    """Before a failed Pod or container is tried again; doubles each time. A real cluster begins with 10."""
    clears_start_time: bool = True
    """A Job's startTime goes when it is suspended; where not, it is set anew on resume only."""
    nodes: int = 4


def annotation(pod: Mapping[str, Document], name: str) -> str:
    """An annotation of a Pod; empty where it has none."""
    found = (pod["metadata"].get("annotations") or {}).get(name)
    return str(found) if found is not None else ""


def exit_code(pod: Mapping[str, Document], attempt: int) -> int:
    """How the given attempt (from 0) of a Pod's container ends."""
    codes = [int(one) for one in annotation(pod, EXIT_CODE).split(",") if one.strip()] or [0]
    return codes[min(attempt, len(codes) - 1)]


def condition(
    document: Document, type_: str, status: str, when: str, reason: str = "", message: str = ""
) -> bool:
    """Set a condition in an object's status; return whether it changed."""
    conditions = document.setdefault("status", {}).setdefault("conditions", [])
    present = next((one for one in conditions if one["type"] == type_), None)
    wanted = {"status": status, "reason": reason, "message": message}
    if present is not None and all((present.get(key) or "") == value for key, value in wanted.items()):
        return False
    if present is None:
        present = {"type": type_}
        conditions.append(present)
    if present.get("status") != status:
        present["lastTransitionTime"] = when
    present.update({key: value for key, value in wanted.items() if value})
    for key in ("reason", "message"):
        if not wanted[key]:
            present.pop(key, None)
    return True


def holds(document: Document, type_: str) -> bool:
    """Whether a condition is True."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(one["type"] == type_ and one["status"] == "True" for one in conditions)
