"""What each rank of a collective test runs: argv[1] is its ``CollectivePlan`` as JSON, and it answers:

place      {"hostname": …, "pid": …, "device": …, "cpu": …, "machine": …, "python": …, "torch": …}
refused    {"what": "…", "hint": "…"}           nothing can be measured, why, and what helps
note       {"implementation": "mpi", "what": "…"}     rank 0: what an implementation cannot do
result     {"size": …, "series": {"mpi": a ``CollectiveResult``, …}, "wrong": [a ``WrongResult``, …]}
           rank 0, after each size; the times are means over all ranks, as with nccl-tests' ``-a 1``
stuck      {"step": 7, "what": "…", "seconds": …}     an operation that did not return

Implementations are measured in rounds, size by size: warm-up, timing, check. Ranks agree by a communicator
of their own, outside of what is timed. `collective_job` takes the answers.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ringleader.agents.training_progress import context_of
from ringleader.bench.collective_implementations import (
    Call,
    Implementation,
    NotOfferedError,
    engine_of,
    others_of,
)
from ringleader.bench.collective_memory import Memory, gpu_memory, host_memory, registered_memory
from ringleader.bench.collective_plan import DTYPES, CollectivePlan, cases
from ringleader.bench.collective_values import CHUNK, Case, sent, wrong_elements
from ringleader.dataclass_json import document, from_document
from ringleader.fabric.byte_size import byte_size
from ringleader.launch.rank_answer import send
from ringleader.measurements.collective import CollectiveResult, Timing, WrongResult

T = TypeVar("T")
OPEN_SECONDS = 120.0
"""Until all ranks have imported their frameworks and connected."""
ROUNDS = 5
"""In each of them every implementation is timed at one size: what drifts slowly meets all alike."""
LOOK_SECONDS = 0.25
TELL_SECONDS = 2.0
"""Between a rank's report and its end: the others' deadlines pass meanwhile, and they report as well."""
EXIT_CODE = 1


class OperationDeadline:
    """Ends this rank where an operation does not return: inside MPI nobody would notice a peer that hangs.

    A thread watches, and answers ``stuck``. ``step`` counts what was watched: of ranks that do the same, the
    one with the lowest is behind.
    """

    def __init__(
        self,
        *,
        tell: Callable[[str, Any], None] = send,
        end: Callable[[int], object] = os._exit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tests replace ``tell`` and ``end``."""
        self._tell, self._end, self._clock = tell, end, clock
        self._until: tuple[float, int, str, float] | None = None
        self._step = 0
        threading.Thread(target=self._watch, name="operation-deadline", daemon=True).start()

    @contextmanager
    def within(self, seconds: float, what: str) -> Iterator[None]:
        """Let what is done inside take up to ``seconds``."""
        self._step += 1
        self._until = (self._clock() + seconds, self._step, what, seconds)
        try:
            yield
        finally:
            self._until = None

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            until = self._until
            if until is not None and self._clock() > until[0]:
                self._tell("stuck", {"step": until[1], "what": until[2], "seconds": until[3]})
                time.sleep(TELL_SECONDS)
                self._end(EXIT_CODE)
                return


def _words(error: Exception) -> str:
    """Return the first line of what an error says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# --- the measurement --------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class TimedCall:
    """One implementation at one size, in place or out of place."""

    implementation: str
    in_place: bool
    case: Case
    call: Call
    iterations: int = 1
    times: list[float] = field(default_factory=list)
    """Seconds of one operation in each iteration: the mean of its round, and of all ranks."""

    @property
    def key(self) -> tuple[str, bool]:
        """What is the same at every size."""
        return self.implementation, self.in_place

    @property
    def what(self) -> str:
        """The operation for people."""
        place = "in place" if self.in_place else "out of place"
        size = byte_size(self.case.most_bytes)
        return f"{self.case.operation} of {size} by {self.implementation}, {place}"


class CollectiveRounds:
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
        self._missing = set[tuple[str, bool]]()
        self._tried = set[tuple[str, bool]]()
        self._noted = set[tuple[str, str]]()

    def run(self) -> None:
        """Measure all sizes; rank 0 reports each when it is done."""
        plan = self._plan
        for size, count in cases(plan, self._control.size):
            case = Case(
                operation=plan.operation,
                dtype=plan.dtype,
                redop=plan.redop,
                root=plan.root,
                count=count,
                ranks=self._control.size,
                rank=self._control.rank,
            )
            every = self._timed_calls(case)
            for timed in every:
                self._warm_up(timed)
            for timed in every:  # both places of an implementation have the same number
                timed.iterations = min(
                    one.iterations for one in every if one.implementation == timed.implementation
                )
            for number in range(ROUNDS):
                for timed in every:
                    self._time(timed, number)
            self._tell(size, count, [(timed, self._wrong(timed)) for timed in every])

    def _timed_calls(self, case: Case) -> list[TimedCall]:
        """Return what is offered, each tried once on all ranks alike; what is not is reported once."""
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
                why = self._agreed(why)
                if timed is not None and not why and timed.key not in self._tried:
                    why = self._try(timed)
                if why or timed is None:
                    self._missing.add((name, in_place))
                else:
                    found.append(timed)
                    why = timed.call.note
                if why:
                    self._note(name, why)
        return found

    def _try(self, timed: TimedCall) -> str:
        """Do an operation for the first time; return why it cannot be done, as all ranks found."""
        self._tried.add(timed.key)
        why = ""
        with self._within(timed, 1):
            try:
                self._once(timed, 0)
            except Exception as error:  # whatever a library raises for what it does not have
                why = _words(error)
        return self._agreed(why)

    def _agreed(self, why: str) -> str:
        """Return the reason of the first rank that has one."""
        return next((one for one in self._gathered(why) if one), "")

    def _gathered(self, value: T) -> list[T]:
        """Return every rank's value."""
        with self._deadline.within(self._plan.patience, "what the ranks agree on"):
            values: list[T] = self._control.allgather(value)
            return values

    def _within(self, timed: TimedCall, iterations: int, what: str = "") -> Any:
        seconds = self._plan.deadline(timed.case.most_bytes, iterations)
        return self._deadline.within(seconds, what + timed.what)

    def _note(self, implementation: str, what: str) -> None:
        if self._control.rank == 0 and (implementation, what) not in self._noted:
            self._noted.add((implementation, what))
            send("note", {"implementation": implementation, "what": what})

    def _once(self, timed: TimedCall, number: int) -> Any:
        """Write this check's values, and do one operation."""
        memory = self._receive if timed.in_place else self._send
        self._receive.clear()
        case, start = timed.case, 0
        if timed.in_place and case.operation == "allgather":
            start = case.rank * case.part_bytes
        if not (timed.in_place and case.operation == "broadcast" and case.rank != case.root):
            for at in range(0, case.sent_bytes, CHUNK):
                memory.write(start + at, sent(case, number, at, min(at + CHUNK, case.sent_bytes)))
        self._control.Barrier()
        returned = timed.call.run()
        self._implementations[timed.implementation].finish()
        return returned

    def _warm_up(self, timed: TimedCall) -> None:
        """Warm up, and find out how many iterations the time allows, by the slowest rank."""
        # Zeros: sums of sums would soon be infinite, and products of products denormal.
        self._send.clear()
        self._receive.clear()
        plan = self._plan
        seconds = max(self._gathered(self._batch(timed, 1)))
        more = max(0, min(plan.warmup, int(plan.seconds / ROUNDS / max(seconds, 1e-9))) - 1)
        if more:
            seconds = max(self._gathered(self._batch(timed, more)))
        timed.iterations = max(1, min(plan.iterations, int(plan.seconds / max(seconds, 1e-9))))

    def _batch(self, timed: TimedCall, iterations: int) -> float:
        """Do some operations after a barrier; return the time of one on this rank."""
        run, finish = timed.call.run, self._implementations[timed.implementation].finish
        with self._within(timed, iterations):
            self._control.Barrier()
            began = time.perf_counter()
            for _ in range(iterations):
                run()
            finish()
            seconds = time.perf_counter() - began
        return seconds / iterations

    def _time(self, timed: TimedCall, number: int) -> None:
        """Do this round's part of the iterations: the first rounds have one more where they do not divide."""
        share = timed.iterations // ROUNDS + (number < timed.iterations % ROUNDS)
        if share:
            timed.times += [statistics.fmean(self._gathered(self._batch(timed, share)))] * share

    def _wrong(self, timed: TimedCall) -> list[int] | None:
        """Return the wrong elements on each rank; None: nothing was checked."""
        wrong = 0
        for number in range(1, self._plan.checks + 1):
            with self._within(timed, 1, "check of "):
                wrong += wrong_elements(timed.case, number, timed.call.result(self._once(timed, number)))
                self._control.Barrier()
        return self._gathered(wrong) if self._plan.checks else None

    def _tell(self, size: int, count: int, every: list[tuple[TimedCall, list[int] | None]]) -> None:
        if self._control.rank:
            return
        places: dict[str, dict[str, Any]] = {}
        wrong = []
        for timed, counts in every:
            own = places.setdefault(timed.implementation, {"iterations": timed.iterations})
            own["in_place" if timed.in_place else "out_of_place"] = Timing(
                seconds=sum(timed.times) / len(timed.times),
                low=min(timed.times) if timed.iterations > 1 else None,
                high=max(timed.times) if timed.iterations > 1 else None,
                wrong=None if counts is None else sum(counts),
            )
            name, in_place = timed.key
            wrong += [
                WrongResult(implementation=name, size=size, in_place=in_place, rank=rank, wrong=number)
                for rank, number in enumerate(counts or ())
                if number
            ]
        series = {name: CollectiveResult(size=size, count=count, **own) for name, own in places.items()}
        send("result", document({"size": size, "series": series, "wrong": wrong}))


# --- the rank ---------------------------------------------------------------------------------------------


def engine_and_device(plan: CollectivePlan) -> tuple[Implementation, str]:
    """Return our engine and the GPU's name; where there cannot be one, say why and end this rank."""
    on_host = plan.memory == "host"
    device = ""
    try:
        if plan.memory == "cuda":
            import torch

            if not torch.cuda.is_available():
                raise RuntimeError(f"PyTorch {torch.__version__} sees no GPU")
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
            device = str(torch.cuda.get_device_name())
        return engine_of(plan.framework, host_memory=on_host), device
    except (ImportError, RuntimeError) as error:
        hint = "leave out --framework" if on_host else "take hosts that have it, or --memory host"
        send("refused", {"what": str(error), "hint": hint})
        sys.exit(EXIT_CODE)


def arrays(plan: CollectivePlan, ranks: int) -> tuple[Memory, Memory]:
    """Return memory to send from and to receive into; where there is no room, say so and end this rank."""
    nbytes = max((size for size, _count in cases(plan, ranks)), default=DTYPES[plan.dtype][1])
    try:
        if plan.memory == "cuda":
            return gpu_memory(nbytes, plan.dtype), gpu_memory(nbytes, plan.dtype)
        if plan.memory == "registered":
            return host_memory(nbytes), registered_memory(nbytes, plan.dtype)
        return host_memory(nbytes), host_memory(nbytes)
    except (MemoryError, RuntimeError) as error:
        what = f"no memory for two arrays of {byte_size(max(plan.sizes))}: {error}"
        send("refused", {"what": what, "hint": "ask for a smaller --maxbytes"})
        os._exit(EXIT_CODE)  # MPI's end would wait for ranks that have theirs


def others(plan: CollectivePlan, control: Any, deadline: OperationDeadline) -> dict[str, Implementation]:
    """Return the other implementations that all ranks can start; rank 0 reports the rest."""
    found: dict[str, Implementation] = {}
    seconds = plan.deadline(max(plan.sizes), plan.iterations)
    for name, make in others_of(plan.implementations[1:], seconds=seconds).items():
        with deadline.within(OPEN_SECONDS, f"the start of {name}"):
            why = ""
            try:
                found[name] = make()
            except (ImportError, RuntimeError, ValueError) as error:
                why = _words(error)
            why = next((one for one in control.allgather(why) if one), "")
        if why:
            found.pop(name, None)
            if control.rank == 0:
                send("note", {"implementation": name, "what": why})
    return found


def main() -> None:
    """Measure what the plan says. The engine comes first, as it starts MPI."""
    plan = from_document(CollectivePlan, json.loads(sys.argv[1]))
    deadline = OperationDeadline()
    with deadline.within(OPEN_SECONDS, "the start of MPI"):
        engine, device = engine_and_device(plan)
    from mpi4py import MPI

    context = {name: value for name, value in context_of().items() if name != "kind"}
    send("place", {**context, "pid": os.getpid(), "device": device})
    control = MPI.COMM_WORLD.Dup()
    implementations = {"ringleader": engine, **others(plan, control, deadline)}
    with deadline.within(OPEN_SECONDS, "making the arrays"):
        memory = arrays(plan, control.size)
    CollectiveRounds(plan, control, implementations, memory, deadline).run()
    with deadline.within(OPEN_SECONDS, "the end of MPI"):
        control.Barrier()
        for implementation in reversed(implementations.values()):
            implementation.close()


if __name__ == "__main__":
    main()
