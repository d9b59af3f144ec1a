"""Whether the ranks' parameters are equal: every N exchanges of an optimizer, their checksums are compared.

A checksum is that of commits (`commit_layout.checksum_of`): a change of one bit changes it, and other values
have the same one with a probability of about 2^-62. Checks are counted in exchanges, in which all ranks take
part: a step that one rank skips moves nothing. N follows from what a check takes: at most 0.1% of a step.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy

from ringleader.adapters.commit_layout import checksum_of, combined
from ringleader.adapters.object_exchange import gather_objects, sum_numbers
from ringleader.adapters.step_metrics import launchers_pipe, report
from ringleader.engine.negotiation import numbered
from ringleader.engine.operations import ReduceOp
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.engine.rank_group import Group

FIRST = 3
"""The exchange in which parameters are compared first: a script may broadcast them after its first step."""
FEWEST = 16
"""At least this many exchanges from one check to the next."""
MOST_COST = 0.0005
"""The part of a step that the shortest check may cost: most take longer, and at most 0.1% is promised."""
NEVER = sys.maxsize
SHOWN = 5
"""Parameters that are named."""
Array = Any
Facts = tuple[int, float, bool]
"""A parameter on one rank: its checksum with all NaN alike, its norm, whether it is trained there."""


@dataclass(frozen=True, kw_only=True)
class ParameterKind:
    """How a framework's parameters are read."""

    checksum: Callable[[Sequence[Any]], int]
    """Returns 62 bits of several that differ where any bit does."""
    facts: Callable[[Any], Facts]
    """Returns what is compared of one parameter where the checksums differ."""
    cure: str
    """The call that makes parameters equal."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Parameters of one optimizer that differ between ranks."""

    optimizer: str
    step: int
    """The last step before it was found."""
    ranks: tuple[int, ...]
    usual: tuple[int, ...]
    """The ranks of the most common values, of several those of the lowest rank; ``ranks`` are all others."""
    parameters: tuple[str, ...]
    norms: str
    """Of the first parameter, on the first one of ``ranks`` and of ``usual``."""

    def text(self, cure: str) -> str:
        """Return the warning."""
        first, *rest = self.parameters[:SHOWN]
        more = f" and {len(self.parameters) - SHOWN} more" if len(self.parameters) > SHOWN else ""
        return (
            f"the parameters of {self.optimizer} differ between ranks after step {self.step}: "
            f"{numbered(self.ranks)} differ{'s' * (len(self.ranks) == 1)} from {numbered(self.usual)} in "
            f"{', '.join([f'{first} (norm {self.norms})', *rest])}{more}. From here on ranks train "
            "different models. Usual causes: weights that each rank made or loaded differently, or that some "
            f"ranks changed. Call {cure} after weights are made or loaded and before the first step. See "
            '"Ranks whose parameters differ" in docs/concepts/engine.md; RINGLEADER_CONSISTENCY_CHECK=off '
            "turns this check off."
        )


def interval(check_seconds: float, step_seconds: float) -> int:
    """Return every how many exchanges a check costs at most `MOST_COST` of a step: a power of two."""
    every = FEWEST
    while check_seconds > MOST_COST * step_seconds * every and every < 1 << 20:
        every *= 2
    return every


def difference(
    optimizer: str, step: int, names: Sequence[str], facts: Sequence[Sequence[Facts]], ranks: Sequence[int]
) -> Difference | None:
    """Return what differs, given each rank's facts and number; what no rank trains does not count."""
    columns = list(zip(*facts, strict=True))
    differing = [
        at for at, one in enumerate(columns) if len({c for c, *_ in one}) > 1 and any(t for *_, t in one)
    ]
    if not differing:
        return None
    values = [tuple(one[at][0] for at in differing) for one in facts]
    most = max(values, key=values.count)
    usual = [at for at, value in enumerate(values) if value == most]
    others = [at for at, value in enumerate(values) if value != most]
    first = columns[differing[0]]
    return Difference(
        optimizer=optimizer,
        step=step,
        ranks=tuple(ranks[at] for at in others),
        usual=tuple(ranks[at] for at in usual),
        parameters=tuple(names[at] for at in differing),
        norms=", ".join(f"{first[at][1]:.9g} on rank {ranks[at]}" for at in (others[0], usual[0])),
    )


class ConsistencyCheck:
    """Compares the parameters of one optimizer over the ranks that exchange its gradients."""

    def __init__(self, optimizer: str, kind: ParameterKind) -> None:
        """Take the optimizer's name for the warning."""
        self._optimizer, self._kind = optimizer, kind
        self._group: Group | None = None
        self.due = FIRST
        """The exchange in which parameters are compared next."""
        self.restart()

    def restart(self) -> None:
        """Count anew: ranks that have joined had fewer exchanges."""
        self.count = 0
        """Exchanges so far."""
        self.due = FIRST if self.due < NEVER else NEVER
        self._last: tuple[int, float] | None = None
        self._seconds = float("inf")

    def exchanged(self, group: Group, named: Sequence[tuple[str, Any]], name: str) -> None:
        """Note that a group exchanged gradients, before the step; compare parameters where that is due.

        Collective. ``named`` are the parameters, in one order on all ranks; ``name`` tells this optimizer
        from others. `RuntimeError` on all ranks where they differ and that is to be an error.
        """
        if group is not self._group:
            self._group = group
            off = PROCESS.get().settings.consistency == "off" or group.engine.transport.name == "uncoupled"
            self.due = NEVER if off or group.ranks.size == 1 else FIRST
            self.restart()
            PROCESS.get().at_join.add(self.restart)
        self.count += 1
        if self.count == FIRST - 1:
            self._last = self.count, perf_counter()
        if named and self.count >= self.due:
            self._compare(group, named, name)

    def _compare(self, group: Group, named: Sequence[tuple[str, Any]], name: str) -> None:
        start, names, values = perf_counter(), *zip(*named, strict=True)
        step_seconds = (start - self._last[1]) / (self.count - self._last[0]) if self._last else float("inf")
        mine = self._kind.checksum(values)
        if self._seconds == float("inf"):  # the first one takes longer on a device
            start, mine = perf_counter(), self._kind.checksum(values)
        # A rank that has joined brings zeros: then nobody compares.
        high, low, joined = sum_numbers(group.engine, array("q", [mine, ~mine, -1]), name, ReduceOp.MAX)
        equal, found = joined == 0 or high == ~low, None
        if not equal:
            facts = gather_objects(group.engine, list(map(self._kind.facts, values)), f"{name}.facts")
            found = difference(self._optimizer, self.count - 1, names, facts, group.global_ranks)
        # A device may have had other work to do before: the shortest check counts.
        taken = perf_counter() - start
        self._seconds = min(self._seconds, taken) if equal else taken
        every = array("q", [interval(self._seconds, step_seconds)])
        [agreed] = sum_numbers(group.engine, every, f"{name}.every", ReduceOp.MAX)
        self.due, self._last = NEVER if found else self.count + agreed, (self.count, perf_counter())
        if found:
            _report(found, found.text(self._kind.cure), speaks=group.ranks.rank == 0)


def _report(found: Difference, text: str, *, speaks: bool) -> None:
    """Say what differs, to people and to the launcher, by one rank; raise where that is an error."""
    if speaks and (pipe := launchers_pipe()) is not None:
        words = {**vars(found), "parameters": found.parameters[:SHOWN], "text": text}
        report(pipe, {"kind": "consistency", **words})
    if PROCESS.get().settings.consistency == "error":
        raise RuntimeError(text)
    if speaks:
        print(f"ringleader: warning: {text}", file=sys.stderr, flush=True)  # noqa: T201


def checksum(arrays: Iterable[Array]) -> int:
    """Return the checksum of arrays in one order; of each the bits count, in the order of C."""
    flat = (numpy.ascontiguousarray(one).reshape(-1).view(numpy.uint8) for one in arrays)
    return combined(checksum_of(one.data, mixed=False) for one in flat)


def array_kind(read: Callable[[Any], Array], cure: str) -> ParameterKind:
    """Return how parameters are compared whose values ``read`` returns as an array; all are trained.

    ``cure`` is the call that makes them equal.
    """

    def facts(parameter: Any) -> Facts:
        plain = numpy.array(read(parameter))
        if (wrong := plain != plain).any():
            plain[wrong] = numpy.nan
        return checksum([plain]), float(numpy.linalg.norm(plain.astype(numpy.float64).reshape(-1))), True

    return ParameterKind(checksum=lambda values: checksum(map(read, values)), facts=facts, cure=cure)
