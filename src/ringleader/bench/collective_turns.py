"""Every implementation in turns, size by size, on one rank: warm-up, timing, check.

Ranks agree by a communicator of their own, outside of what is timed; who waits for others has a deadline.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ringleader.bench.collective_implementations.implementation import (
    Call,
    Implementation,
    NotOfferedError,
)
from ringleader.bench.collective_implementations.memory import Memory
from ringleader.bench.collective_plan import CollectivePlan, cases
from ringleader.bench.collective_values import CHUNK, Case, sent, wrong_elements
from ringleader.bench.operation_deadline import OperationDeadline
from ringleader.fabric.byte_size import byte_size
from ringleader.launch.rank_answer import send

T = TypeVar("T")
ROUNDS = 5
"""Turns of each implementation at one size: what drifts slowly meets all alike."""


@dataclass(kw_only=True)
class TimedCall:
    """One implementation at one size, in place or out of place."""

    implementation: str
    in_place: bool
    case: Case
    call: Call
    iterations: int = 1
    times: list[float] = field(default_factory=list)
    """Seconds of one operation in each round, on this rank."""

    @property
    def what(self) -> str:
        """The operation for people."""
        place = "in place" if self.in_place else "out of place"
        size = byte_size(self.case.most_bytes)
        return f"{self.case.operation} of {size} by {self.implementation}, {place}"


class CollectiveTurns:
    """The sizes, one after the other. ``control`` is an mpi4py communicator for agreements, never timed."""

    def __init__(
        self,
        plan: CollectivePlan,
        control: Any,
        implementations: dict[str, Implementation],
        memory: tuple[Memory, Memory],
        deadline: OperationDeadline,
    ) -> None:
        """``memory``: what is sent from, what is received into; large enough for every size."""
        self._plan, self._control, self._implementations = plan, control, implementations
        self._send, self._receive = memory
        self._deadline = deadline
        self._missing: set[tuple[str, bool]] = set()
        self._tried: set[tuple[str, bool]] = set()
        self._noted: set[tuple[str, str]] = set()

    def run(self) -> None:
        """Measure all sizes; rank 0 tells each when it is done."""
        for size, count in cases(self._plan, self._control.size):
            case = Case(
                operation=self._plan.operation,
                dtype=self._plan.dtype,
                redop=self._plan.redop,
                root=self._plan.root,
                count=count,
                ranks=self._control.size,
                rank=self._control.rank,
            )
            timed_calls = self._timed_calls(case)
            for timed in timed_calls:
                self._warm_up(timed)
            self._agree_on_iterations(timed_calls)
            for turn in range(ROUNDS):
                for timed in timed_calls:
                    self._time(timed, turn)
            wrong = [self._wrong(timed) for timed in timed_calls]
            self._tell(size, count, timed_calls, wrong)

    def _timed_calls(self, case: Case) -> list[TimedCall]:
        """Return what is offered, each tried once on all ranks alike; what is not is told once."""
        found = []
        for name, implementation in self._implementations.items():
            for in_place in self._plan.places:
                if (name, in_place) in self._missing:
                    continue
                timed, why = None, ""
                try:
                    call = implementation.prepare(case, self._send, self._receive, in_place=in_place)
                    timed = TimedCall(implementation=name, in_place=in_place, case=case, call=call)
                except NotOfferedError as error:
                    why = str(error)
                why = self._agreed(why) or self._try(timed)
                if why or timed is None:
                    self._missing.add((name, in_place))
                    self._note(name, why)
                else:
                    found.append(timed)
                    if timed.call.note:
                        self._note(name, timed.call.note)
        return found

    def _try(self, timed: TimedCall | None) -> str:
        """Do an operation for the first time; return why it cannot be done, as all ranks found."""
        if timed is None or (timed.implementation, timed.in_place) in self._tried:
            return ""
        self._tried.add((timed.implementation, timed.in_place))
        why = ""
        with self._deadline.within(self._plan.deadline(timed.case.most_bytes, 1), timed.what):
            try:
                self._once(timed, 0)
            except Exception as error:  # whatever a library raises for what it does not have
                why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return self._agreed(why)

    def _agreed(self, why: str) -> str:
        """Return the reason of the first rank that has one."""
        return next((one for one in self._gathered(why) if one), "")

    def _gathered(self, value: T) -> list[T]:
        """Return every rank's value."""
        with self._deadline.within(self._plan.patience, "what the ranks agree on"):
            values: list[T] = self._control.allgather(value)
            return values

    def _note(self, implementation: str, what: str) -> None:
        if self._control.rank == 0 and (implementation, what) not in self._noted:
            self._noted.add((implementation, what))
            send("note", {"implementation": implementation, "what": what})

    def _once(self, timed: TimedCall, turn: int) -> Any:
        """Write this turn's values, and do one operation."""
        memory = self._receive if timed.in_place else self._send
        self._receive.clear()
        case, start = timed.case, 0
        if timed.in_place and case.operation == "allgather":
            start = case.rank * case.part_bytes
        if not (timed.in_place and case.operation == "broadcast" and case.rank != case.root):
            for at in range(0, case.sent_bytes, CHUNK):
                memory.write(start + at, sent(case, turn, at, min(at + CHUNK, case.sent_bytes)))
        self._control.Barrier()
        returned = timed.call.run()
        self._implementations[timed.implementation].finish()
        return returned

    def _warm_up(self, timed: TimedCall) -> None:
        """Warm up, and find out how many iterations the time allows."""
        # Zeros: sums of sums would soon be infinite, and products of products denormal.
        self._send.clear()
        self._receive.clear()
        seconds, most = self._seconds_of(timed, 1), self._plan.warmup
        more = max(0, min(most, int(self._plan.seconds / ROUNDS / max(seconds, 1e-9))) - 1)
        if more:
            seconds = self._seconds_of(timed, more)
        timed.iterations = max(1, min(self._plan.iterations, int(self._plan.seconds / max(seconds, 1e-9))))

    def _seconds_of(self, timed: TimedCall, iterations: int) -> float:
        """Return the time of one operation on the slowest rank; the same number on all."""
        return max(self._gathered(self._batch(timed, iterations)))

    def _batch(self, timed: TimedCall, iterations: int) -> float:
        """Do some operations after a barrier; return the time of one on this rank."""
        run, finish = timed.call.run, self._implementations[timed.implementation].finish
        with self._deadline.within(self._plan.deadline(timed.case.most_bytes, iterations), timed.what):
            self._control.Barrier()
            began = time.perf_counter()
            for _ in range(iterations):
                run()
            finish()
            seconds = time.perf_counter() - began
        return seconds / iterations

    def _agree_on_iterations(self, timed_calls: list[TimedCall]) -> None:
        """Let both places of an implementation have the same number."""
        for timed in timed_calls:
            both = [one.iterations for one in timed_calls if one.implementation == timed.implementation]
            timed.iterations = min(both)

    def _time(self, timed: TimedCall, turn: int) -> None:
        """Do this round's part of the iterations: the first rounds have one more where they do not divide."""
        share = timed.iterations // ROUNDS + (turn < timed.iterations % ROUNDS)
        if share:
            mean = statistics.fmean(self._gathered(self._batch(timed, share)))
            timed.times += [mean] * share

    def _wrong(self, timed: TimedCall) -> list[int] | None:
        """Return the wrong elements on each rank; None: nothing was checked."""
        wrong = 0
        for turn in range(1, self._plan.checks + 1):
            with self._deadline.within(
                self._plan.deadline(timed.case.most_bytes, 1), f"check of {timed.what}"
            ):
                got = timed.call.result(self._once(timed, turn))
                wrong += wrong_elements(timed.case, turn, got)
                self._control.Barrier()
        return self._gathered(wrong) if self._plan.checks else None

    def _tell(
        self, size: int, count: int, timed_calls: list[TimedCall], wrong: list[list[int] | None]
    ) -> None:
        if self._control.rank:
            return
        series: dict[str, Any] = {}
        bad = []
        for timed, counts in zip(timed_calls, wrong, strict=True):
            own = series.setdefault(timed.implementation, {"iterations": timed.iterations})
            own["in_place" if timed.in_place else "out_of_place"] = {
                "seconds": sum(timed.times) / len(timed.times),
                "low": min(timed.times) if timed.iterations > 1 else None,
                "high": max(timed.times) if timed.iterations > 1 else None,
                "wrong": None if counts is None else sum(counts),
            }
            bad += [
                {
                    "implementation": timed.implementation,
                    "size": size,
                    "in_place": timed.in_place,
                    "rank": rank,
                    "wrong": number,
                }
                for rank, number in enumerate(counts or ())
                if number
            ]
        send("result", {"size": size, "count": count, "series": series, "wrong": bad})
