"""A job without an operator: every object of it, made from the operator's own builders. Pure.

The launcher's Job owns the rest, so that one deletion takes everything away, and so does the Job's
``ttlSecondsAfterFinished`` where the client that made it is gone. It owns without controlling: the Job
controller would take its reference from Pods that it controls and that are not of its own making. Labels say
another manager than the operator's, which therefore never sees these objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringleader.errors import Fault, RequestError
from ringleader.kubernetes.jobs.job_state import MPI, ON_PODS, SLOTS
from ringleader.kubernetes.jobs.pod_template import unexpanded
from ringleader.kubernetes.mpijob import object_metadata, object_names
from ringleader.kubernetes.mpijob.annotations import (
    GANG,
    MIN_WORKERS,
    ON_WORKER_FAILURE,
    WAIT_FOR_WORKERS,
    WAIT_LIMIT,
    WAIT_OFF,
)
from ringleader.kubernetes.mpijob.model import ManagedBy, MPIJob
from ringleader.kubernetes.mpijob.object_metadata import KUEUE_QUEUE
from ringleader.kubernetes.objects import (
    exec_spawn,
    launcher_and_workers,
    service_and_config_map,
    ssh_secret,
)
from ringleader.kubernetes.objects.operator_settings import OperatorSettings

MANAGER = "ringleader-client"
RUN = "ringleader/run"
"""Annotation of the launcher's Job: which call made it."""
KEPT = 300
"""Seconds after its end until a job is removed whose client is gone, unless the job says otherwise."""

Document = dict[str, Any]

_WAIT = """\
{start}if command -v getent >/dev/null; then
  for host in "$(hostname).{service}" $(sed 's/[ :].*//' {hostfile}); do
    until getent hosts "$host" >/dev/null; do
{give_up}      sleep 1
    done
  done
fi
exec "$@"
"""
"""Around the launcher's command where no operator's image waits for the workers: a Pod's name resolves once
it is ready. An image without getent does without; ssh tries again by itself for a while."""
_START = "end=$(($(date +%s) + {seconds}))\n"
_GIVE_UP = """\
      if [ "$(date +%s)" -ge "$end" ]; then
        echo "ringleader: $host has no address after {seconds} seconds: its Pod is not ready" >&2
        exit 1
      fi
"""
"""Only where the job has a limit: nobody knows for how long Pods are queued, or their images pulled."""


@dataclass(frozen=True, kw_only=True)
class OperatorlessPlan:
    """The objects of one job, none with an owner yet."""

    launcher: Document
    """The launcher's Job, suspended: nothing of the job runs before all of it is there."""
    parts: tuple[Document, ...]
    """What the Pods need before they can start."""
    secret: Document | None
    """The Secret without its keys; ``None``: the job spawns without ssh."""
    workers: tuple[Document, ...]

    @property
    def documents(self) -> tuple[Document, ...]:
        """All of them, in the order in which they are sent."""
        keys = () if self.secret is None else (self.secret,)
        return (self.launcher, *self.parts, *keys, *self.workers)


def check_operatorless(job: MPIJob) -> None:
    """Raise RequestError with everything in a job that only an operator can do."""
    policy, notes, meta = job.spec.run_policy, job.metadata.annotations, job.metadata
    asked = {
        "spec.runPolicy.suspend": policy.suspend,
        "spec.runPolicy.schedulingPolicy": policy.scheduling_policy is not None,
        "spec.runPolicy.managedBy": policy.managed_by not in (None, ManagedBy.MPI_OPERATOR),
        f"metadata.labels[{KUEUE_QUEUE}]": KUEUE_QUEUE in meta.labels,
        f"metadata.annotations[{GANG}]": notes.get(GANG, "none") != "none",
        f"metadata.annotations[{ON_WORKER_FAILURE}]": ON_WORKER_FAILURE in notes,
        f"metadata.annotations[{MIN_WORKERS}] (--min-np, --max-np …)": MIN_WORKERS in notes,
    }
    what, hint = "cannot be done without an operator", "leave it out, or use --on kubernetes"
    faults = [Fault(where=where, what=what, hint=hint) for where, is_asked in asked.items() if is_asked]
    if faults:
        raise RequestError(faults)


def plan(job: MPIJob, settings: OperatorSettings, *, run: str) -> OperatorlessPlan:
    """Return what a job becomes. ``run`` marks this call."""
    waits = not settings.image
    parts = [
        service_and_config_map.service(job),
        service_and_config_map.config_map(job, range(job.workers), settings),
    ]
    if waits:
        parts[0]["spec"]["publishNotReadyAddresses"] = False
    if exec_spawn.is_exec(job):
        pods = [object_names.worker(job.metadata.name, index) for index in range(job.workers)]
        parts += [exec_spawn.service_account(job), exec_spawn.role(job, pods), exec_spawn.role_binding(job)]
    return OperatorlessPlan(
        launcher=_launcher(job, settings, run=run, waits=waits),
        parts=tuple(_ours(part) for part in parts),
        secret=None if exec_spawn.is_exec(job) else _ours(ssh_secret.secret(job)),
        workers=tuple(
            _ours(launcher_and_workers.worker_pod(job, index, settings)) for index in range(job.workers)
        ),
    )


def owned(document: Document, *, name: str, uid: str) -> Document:
    """Return a document with the launcher's Job as its owner."""
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
    return {**document, "metadata": {**document["metadata"], "ownerReferences": [reference]}}


def _launcher(job: MPIJob, settings: OperatorSettings, *, run: str, waits: bool) -> Document:
    document = _ours(launcher_and_workers.launcher_job(job, settings, suspend=True))
    meta, spec = document["metadata"], document["spec"]
    meta["labels"] = {**meta["labels"], object_metadata.JOB_NAME: job.metadata.name, ON_PODS: "pods"}
    meta["annotations"] = {
        object_metadata.WORKERS: str(job.workers),
        SLOTS: str(job.spec.slots_per_worker),
        MPI: str(job.spec.mpi_implementation),
        RUN: run,
    }
    asked = job.spec.run_policy.ttl_seconds_after_finished  # nobody else is there to remove the job
    spec["ttlSecondsAfterFinished"] = KEPT if asked is None else asked
    first = spec["template"]["spec"]["containers"][0]
    is_off = job.metadata.annotations.get(WAIT_FOR_WORKERS) == WAIT_OFF
    if waits and not is_off and first.get("command"):
        first["command"] = ["sh", "-c", _waiting(job), "sh", *first["command"]]
    return document


def _waiting(job: MPIJob) -> str:
    seconds = job.metadata.annotations.get(WAIT_LIMIT)
    return unexpanded(
        _WAIT.format(
            start=_START.format(seconds=seconds) if seconds else "",
            give_up=_GIVE_UP.format(seconds=seconds) if seconds else "",
            service=object_names.service(job.metadata.name),
            hostfile=object_names.HOSTFILE_PATH,
        )
    )


_OPERATORS = {
    (object_metadata.MANAGED_BY, object_metadata.MANAGER),
    (object_metadata.OPERATOR_NAME, object_metadata.OPERATOR),
}
"""Labels that say that the operator looks after an object."""


def _ours(document: Document) -> Document:
    """Return a document without an owner and with our name where the operator's was."""

    def renamed(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                key: MANAGER if isinstance(one, str) and (key, one) in _OPERATORS else renamed(one)
                for key, one in value.items()
            }
        return [renamed(one) for one in value] if isinstance(value, list | tuple) else value

    found: Document = renamed(document)
    found["metadata"].pop("ownerReferences", None)
    return found
