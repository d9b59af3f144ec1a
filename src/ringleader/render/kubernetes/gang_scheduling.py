"""Which gang scheduler looks after a job, and what it knows the job's Pods by. Pure."""

from __future__ import annotations

from ringleader.mpijob.annotations import GANG
from ringleader.mpijob.model import MPIJob
from ringleader.mpijob.object_metadata import Document
from ringleader.render.kubernetes.operator_settings import OperatorSettings

NONE = "none"
VOLCANO = "volcano"
VOLCANO_GROUP = "scheduling.k8s.io/group-name"
"""Annotation of a Pod: its PodGroup."""
PLUGINS_GROUP = "scheduling.x-k8s.io/pod-group"
"""Label of a Pod: its PodGroup."""


def gang_of(job: MPIJob, settings: OperatorSettings) -> str:
    """Return the gang scheduler of a job: what the job says, else what the operator was started with.

    Empty: none. ``volcano``, or the name of a scheduler with scheduler-plugins' coscheduling.
    """
    name = job.metadata.annotations.get(GANG, settings.gang)
    return "" if name == NONE else name


def join(pod: Document, job: MPIJob, settings: OperatorSettings) -> None:
    """Make a Pod of ours a member of its job's group."""
    name = gang_of(job, settings)
    if not name:
        return
    pod["spec"]["schedulerName"] = name
    meta = pod["metadata"]
    if name == VOLCANO:
        meta["annotations"] = {**(meta.get("annotations") or {}), VOLCANO_GROUP: job.metadata.name}
    else:
        meta["labels"][PLUGINS_GROUP] = job.metadata.name
