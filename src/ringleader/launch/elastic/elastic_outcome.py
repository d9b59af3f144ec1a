"""How an elastic job ended, and what it went through, as values. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ringleader.launch.elastic.membership_state import Result, State
from ringleader.launch.elastic_history import ElasticHistory, Event
from ringleader.launch.outcome import JobExit, RankEnd
from ringleader.rank_placement import Plan

if TYPE_CHECKING:
    from ringleader.launch.elastic.rank_connections import ElasticRank


def elastic_history(events: Sequence[Event], state: State) -> ElasticHistory:
    """Return what a job that is over went through."""
    return ElasticHistory(
        generations=state.last_generation,
        worlds=state.last_world,
        ranks_started=state.last_incarnation + 1,
        events=tuple(events),
    )


def job_exit_of(result: Result, ranks: Mapping[int, ElasticRank]) -> JobExit:
    """Return whose exit code counts."""
    failure = None
    if result.failure is not None and (rank := ranks.get(result.failure.incarnation)) is not None:
        failure = rank.end
    return JobExit(
        exit_code=result.exit_code, whose=result.whose, reason=result.reason, first_failure=failure
    )


def results_of(
    ranks: Mapping[int, ElasticRank], order: Sequence[int], plan: Plan, result: Result
) -> tuple[bytes | None, ...]:
    """Return what the ranks of the last generation sent back, pickled, by rank; where a rank's failure ended
    the job, what that one sent stands at its number."""
    found = {rank: bytes(one.result) for rank, one in _last_ranks(ranks, order, plan)}
    failed = None if result.failure is None else ranks.get(result.failure.incarnation)
    if failed is not None and failed.end is not None:
        found[failed.end.rank] = bytes(failed.result)
    return tuple(found.get(rank) or None for rank in range(max(found, default=-1) + 1))


def ends_of(ranks: Mapping[int, ElasticRank], order: Sequence[int], plan: Plan) -> tuple[RankEnd, ...]:
    """Return how the ranks of the last generation ended, by rank; of a job that had none, those started."""
    return tuple(
        replace(one.end, rank=rank) if one.end is not None else _unknown(rank, one)
        for rank, one in _last_ranks(ranks, order, plan)
    )


def _last_ranks(
    ranks: Mapping[int, ElasticRank], order: Sequence[int], plan: Plan
) -> list[tuple[int, ElasticRank]]:
    wanted = [one for one in (order or sorted(ranks)[: plan.size]) if one in ranks]
    return [(rank, ranks[incarnation]) for rank, incarnation in enumerate(wanted)]


def _unknown(rank: int, one: ElasticRank) -> RankEnd:
    return RankEnd(
        rank=rank,
        host=one.host.host.name,
        exit_code=None,
        signal=None,
        seconds=0.0,
        at=0.0,
        stopped="ringleader",
        reason="its end was not told",
    )
