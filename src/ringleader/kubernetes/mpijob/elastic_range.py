"""Elastic jobs: how many workers a job may run with. Pure."""

from __future__ import annotations

from ringleader.kubernetes.mpijob.annotations import MAX_WORKERS, MIN_WORKERS, number_in
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.value_class import dataclass


@dataclass(frozen=True, kw_only=True)
class ElasticRange:
    """The workers of an elastic job."""

    least: int
    """With fewer nothing runs."""
    most: int | None
    """``replicas`` may not exceed it; ``None``: any number."""


def elastic_range(job: MPIJob) -> ElasticRange | None:
    """Return how many workers an elastic job may have; ``None``: the job is not elastic."""
    notes = job.metadata.annotations
    least = number_in(notes, MIN_WORKERS)
    return None if least is None else ElasticRange(least=least, most=number_in(notes, MAX_WORKERS))


def is_elastic(job: MPIJob) -> bool:
    """Say whether a job continues with fewer or more workers."""
    return elastic_range(job) is not None
