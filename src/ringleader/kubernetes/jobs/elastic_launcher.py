"""The launcher's command of an elastic job: ``ringleader run`` in the user's image. Pure.

It looks for its hosts by itself. The script that it asks is the operator's, in the launcher's ConfigMap
(``render/kubernetes/config_map``), so the launcher's Pod needs no account and no right of the API's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ringleader.kubernetes.jobs.job_request import JobRequest
from ringleader.kubernetes.mpijob.annotations import MAX_WORKERS, MIN_WORKERS
from ringleader.kubernetes.mpijob.elastic_range import ElasticRange
from ringleader.kubernetes.mpijob.model import MpiImplementation
from ringleader.kubernetes.objects.config_map import DISCOVER_HOSTS_PATH
from ringleader.option_fields import words_of
from ringleader.plan.elastic_options import COOLDOWN, ElasticOptions

_MPI = {MpiImplementation.OPENMPI: "", MpiImplementation.MPICH: "mpich", MpiImplementation.INTEL: "intel"}
"""Words of ``--mpi``. Open MPI: the embedded one, else what the image's PATH has."""


def elastic_annotations(request: JobRequest) -> dict[str, str]:
    """Return the annotations that tell the operator how many workers the job may have."""
    found = worker_range(request)
    if found is None:
        return {}
    most = {} if found.most is None else {MAX_WORKERS: str(found.most)}
    return {MIN_WORKERS: str(found.least), **most}


def worker_range(request: JobRequest) -> ElasticRange | None:
    """Return how many workers an elastic job may have; ``None``: the job is not elastic."""
    elastic = request.elastic
    if elastic is None:
        return None
    limits = (elastic.max_hosts, None if elastic.max_np is None else _workers(elastic.max_np, request.slots))
    return ElasticRange(
        least=max(elastic.min_hosts, _workers(elastic.min_np, request.slots), 1),
        most=min((one for one in limits if one is not None), default=None),
    )


def elastic_words(request: JobRequest, elastic: ElasticOptions, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of ``ringleader run``. ``names``: variables of its container that every rank gets."""
    return (
        *("--host-discovery-script", DISCOVER_HOSTS_PATH),
        *("--slots-per-host", str(request.slots)),  # other operators' scripts print hosts without them
        *("--min-np", str(elastic.min_np)),
        *words_of(_said(elastic), ElasticOptions(cooldown=COOLDOWN)),
        *_other_options(request),
        # Pods do not know of each other: bound ranks of two Pods on one node would share the same cores.
        *("--bind", "none", "--no-prefix"),
        *(word for name in names for word in ("-x", name)),
        *("--", *request.command),
    )


def _said(elastic: ElasticOptions) -> ElasticOptions:
    """Return what the user asked for; the rest is left to ``ringleader run``'s own defaults."""
    cooldown = COOLDOWN if elastic.cooldown is None else elastic.cooldown
    return replace(elastic, min_np=1, discovery_script=None, slots=None, cooldown=cooldown)


def _other_options(request: JobRequest) -> Iterator[str]:
    """Yield how many ranks it begins with, and by which MPI and ssh."""
    mpi = _MPI[request.mpi] if request.mpirun == JobRequest.mpirun else request.mpirun
    numbers = {"-n": request.start_np, "--ssh-port": request.ssh_port}
    for option, number in numbers.items():
        if number is not None:
            yield from (option, str(number))
    if mpi:
        yield from ("--mpi", mpi)
    for word in request.mpirun_args:
        yield from ("--mpirun-arg", word)


def _workers(ranks: int, slots: int) -> int:
    return -(-ranks // max(1, slots))
