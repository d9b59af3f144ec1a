"""Variables for transports that each rank of a job gets: what fits its host, as far as hosts agree. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from ringleader.launch.host_probe.host_answer import HostReport
from ringleader.plan.job import Job, Mpi
from ringleader.plan.rank_placement import Plan, RankPlace
from ringleader.render.rank_environment import interface_variables, is_forwarded
from ringleader.value_class import dataclass

if TYPE_CHECKING:  # only jobs on hosts with RDMA devices pay for it
    from ringleader.fabric.facts import HostFacts as FabricFacts
    from ringleader.fabric.settings.setting import Settings

Key = TypeVar("Key")
SHOWN = 3
"""Hosts or ranks of one kind that a dry run names."""


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """What is set on each host and for each rank."""

    hosts: Mapping[str, Settings] = field(default_factory=dict)
    """By host: what all its ranks have."""
    ranks: Mapping[int, Settings] = field(default_factory=dict)
    """By rank: what it has besides, or otherwise."""
    host_of: Mapping[int, str] = field(default_factory=dict)
    """Rank → its host in ``hosts``."""
    facts: Mapping[str, FabricFacts] = field(default_factory=dict)
    """By host: what it reported of its devices; only hosts with RDMA devices do."""

    def variables(self, rank: int) -> dict[str, str]:
        """Return the variables of a rank."""
        parts = (self.hosts.get(self.host_of.get(rank, "")), self.ranks.get(rank))
        return {name: value for part in parts if part for name, value in part.variables.items()}

    def shown(self) -> dict[str, Settings]:
        """Return the same by what a dry run calls it: ``h1, h2``, ``rank 3``; equal ones once."""
        hosts = {_listed("", names): found for found, names in _alike(self.hosts).items()}
        ranks = {_listed("rank", numbers): found for found, numbers in _alike(self.ranks).items()}
        return hosts | ranks


def job_settings(
    job: Job, plan: Plan, mpi: Mpi, reports: Sequence[HostReport], caller: Mapping[str, str]
) -> JobSettings:
    """Return the settings of a job; none on one host, and for ranks that exchange nothing.

    ``caller``: the launcher's whole environment, of which hosts see what is forwarded.
    """
    facts = {one.identity: one.fabric for one in reports if one.fabric is not None}
    if not job.transport_settings or job.uncoupled or len(plan.hosts) < 2 or not facts:
        return JobSettings()
    from ringleader.fabric.settings.recommended_settings import agreed
    from ringleader.fabric.settings.setting import Settings

    user = _user_variables(job, mpi, caller)
    known = {
        host.host.name: _with_mpi(facts[host.identity], mpi) for host in plan.hosts if host.identity in facts
    }
    found = {
        host.host.name: _of_host(job, known[host.host.name], user) if host.host.name in known else Settings()
        for host in plan.hosts
    }
    host_of = {place.rank: plan.hosts[place.host_index].host.name for place in plan.ranks}
    ranks = {
        place.rank: _of_rank(place, known[name], user, found[name])
        for place in plan.ranks
        if (name := host_of[place.rank]) in known
    }
    return JobSettings(
        hosts=agreed(found),
        ranks={rank: own for rank, own in ranks.items() if own.settings},
        host_of=host_of,
        facts=known,
    )


def _of_host(job: Job, facts: FabricFacts, user: Mapping[str, str]) -> Settings:
    """Return what fits a host, and before it what keeps libraries to the wire that is required."""
    from ringleader.fabric.settings.recommended_settings import recommend
    from ringleader.fabric.settings.setting import Settings
    from ringleader.fabric.unread_areas import UnreadError, known

    try:
        here = known(facts)
        fitting = recommend(here, user=user)
        if not job.require:
            return fitting
        from ringleader.fabric.transport_proof.enforcing_settings import enforcing_settings
        from ringleader.fabric.transport_proof.requirement import parse_requirement

        required = enforcing_settings(parse_requirement(job.require), here, {**here.environment, **user})
    except UnreadError:  # prepare names the host
        return Settings()
    others = tuple(one for one in fitting.settings if one.variable not in required.variables)
    return required + replace(fitting, settings=others)


def _alike(found: Mapping[Key, Settings]) -> dict[Settings, list[Key]]:
    groups: dict[Settings, list[Key]] = {}
    for key, settings in found.items():
        groups.setdefault(settings, []).append(key)
    return groups


def _listed(word: str, keys: Sequence[object]) -> str:
    """Return ``ranks 0, 8, 16 and 5 more``."""
    shown = ", ".join(map(str, keys[:SHOWN]))
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    return f"{word}{'s' if word and len(keys) > 1 else ''} {shown}{more}".strip()


def _of_rank(place: RankPlace, facts: FabricFacts, user: Mapping[str, str], host: Settings) -> Settings:
    """Return what a rank has besides its host's settings: what follows from its GPU."""
    from ringleader.fabric.settings.recommended_settings import recommend
    from ringleader.fabric.settings.setting import Settings

    gpu = place.gpu or ""
    if not gpu.isdigit() or int(gpu) >= len(facts.gpus) or facts.late_areas:
        return Settings()
    mine = recommend(facts, local_rank=int(gpu), user=user)
    return Settings(settings=tuple(one for one in mine.settings if one not in host.settings))


def _user_variables(job: Job, mpi: Mpi, caller: Mapping[str, str]) -> dict[str, str]:
    """Return what the user has set for all hosts, by environment, options, or words for mpirun."""
    forwarded = {name: value for name, value in caller.items() if is_forwarded(name)}
    words = dict(_mpirun_variables(job.extra_mpirun_args))
    return interface_variables(job, mpi) | words | forwarded | dict(job.env)


def _mpirun_variables(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what ``--mca NAME VALUE`` and ``-x NAME=VALUE`` set."""
    for index, (option, name) in enumerate(pairwise(words)):
        if option in ("--mca", "-mca"):
            yield f"OMPI_MCA_{name}", words[index + 2] if index + 2 < len(words) else ""
        elif option == "-x":
            variable, _, value = name.partition("=")
            yield variable, value


def _with_mpi(facts: FabricFacts, mpi: Mpi) -> FabricFacts:
    """Return the facts with the MPI that starts this job in front of those that are installed."""
    from ringleader.fabric.facts import MpiFacts

    family = mpi.name.rpartition(" ")[0]
    same = [one for one in facts.software.mpis if one.mpirun == mpi.mpirun or one.version == mpi.version]
    built_with = next((one.built_with for one in same if one.family == family), {})
    ours = MpiFacts(
        family=family,
        version=mpi.version,
        mpirun=mpi.mpirun,
        library=mpi.library,
        embedded=mpi.embedded,
        built_with=built_with,
    )
    return replace(facts, software=replace(facts.software, mpis=(ours, *facts.software.mpis)))
