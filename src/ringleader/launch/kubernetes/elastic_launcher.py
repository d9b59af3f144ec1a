"""The launcher's command of an elastic job: ``ringleader run`` in the user's image. Pure.

It looks for its hosts by itself. The script that it asks is the operator's, in the launcher's ConfigMap
(``render/kubernetes/config_map``), so the launcher's Pod needs no account and no right of the API's.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.elastic_options import COOLDOWN, ElasticOptions
from ringleader.launch.kubernetes.job_request import JobRequest
from ringleader.mpijob.annotations import MAX_WORKERS, MIN_WORKERS
from ringleader.mpijob.elastic_range import ElasticRange
from ringleader.mpijob.model import MpiImplementation
from ringleader.render.kubernetes.config_map import DISCOVER_HOSTS_PATH

_MPI = {MpiImplementation.OPENMPI: "", MpiImplementation.MPICH: "mpich", MpiImplementation.INTEL: "intel"}
"""Words of ``--mpi``. Open MPI: the embedded one, else what the image's PATH has."""
_WITH_VALUES = (
    *("max_np", "min_hosts", "max_hosts", "rank_restarts", "reset_limit", "cooldown", "timeout"),
    *("hang_seconds", "checkpoint_dir", "checkpoint_every"),
)
"""Fields of ``ElasticOptions`` that are options of ``run`` of the same name, but for these."""
_SPELLINGS = {
    "cooldown": "--blacklist-cooldown-range",
    "timeout": "--elastic-timeout",
    "hang_seconds": "--elastic-hang-seconds",
}


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
        *_elastic_options(elastic),
        *_other_options(request),
        # Pods do not know of each other: bound ranks of two Pods on one node would share the same cores.
        *("--bind", "none", "--no-prefix"),
        *(word for name in names for word in ("-x", name)),
        *("--", *request.command),
    )


def _elastic_options(elastic: ElasticOptions) -> Iterator[str]:
    """Yield what the user asked for; the rest is left to ``ringleader run``'s own defaults."""
    yield from ("--min-np", str(elastic.min_np))
    default = ElasticOptions(cooldown=COOLDOWN)
    for name in _WITH_VALUES:
        value = getattr(elastic, name)
        if value is not None and value != getattr(default, name):
            values = value if isinstance(value, tuple) else (value,)
            yield _SPELLINGS.get(name) or f"--{name.replace('_', '-')}"
            yield from (f"{one:g}" if isinstance(one, float) else str(one) for one in values)
    if elastic.exclude_hosts:
        yield "--exclude-hosts"


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
