"""One job at several sizes, coupled and uncoupled, several times over.

The order is decided first (``turns``), then done (``scale``). After every single run the caller's ``keep``
is given all that was measured so far, so nothing is lost when a later run fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ringleader import __version__
from ringleader.bench import run_file
from ringleader.bench.grid import Size, hosts_for
from ringleader.bench.meter import Meter
from ringleader.errors import Fault, RankError, RequestError, RingleaderError
from ringleader.fabric.transport_proof.proof import TransportProof
from ringleader.fabric.transport_proof.requirement import WITHIN
from ringleader.job import Job
from ringleader.measurements import run_context
from ringleader.measurements.run_context import with_facts
from ringleader.metrics import Sample
from ringleader.scaling import Context, Point, Run


class Outcome(run_context.Outcome, Protocol):
    """What a run of a job left: the part of the launcher's Outcome that is needed here."""

    @property
    def exit_code(self) -> int: ...
    @property
    def whose(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def proof(self) -> TransportProof | None: ...


class Launcher(Protocol):
    """``ringleader.launch.launch_job.launch``, or a scripted one in tests."""

    def __call__(self, job: Job, *, environ: Mapping[str, str], listener: Meter) -> Outcome:
        """Run the job to its end, telling the listener what the ranks print and report."""
        ...


MOST_REPEATS = 1000
"""More than this is taken for a mistake."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What was asked: a job, the sizes, and how often."""

    name: str
    job: Job
    """Hosts in it are those the sizes may use; its ``np`` is not looked at."""
    grid: tuple[Size, ...]
    repeats: int
    warmup: float
    """Part of the common training time that is left out at its beginning."""
    uncoupled: bool = True
    """Also run as many ranks that exchange nothing."""
    lab: bool = False
    """The hosts are a lab's."""
    cpu: str = ""
    """Processor of the machine that launches, for ranks that do not tell theirs."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One run among those of a scaling run."""

    size: Size
    repetition: int
    uncoupled: bool

    def __str__(self) -> str:
        kind = "uncoupled" if self.uncoupled else "coupled"
        return f"{self.size} {kind}, repetition {self.repetition + 1}"


Measured = dict[tuple[Size, bool], list[tuple[int, Sample]]]
"""(size, uncoupled) → (repetition, what it measured)."""
Proofs = dict[Size, TransportProof]
"""Size → the proof of one of its coupled runs; see ``Point.transport``."""


def turns(grid: Sequence[Size], repeats: int, *, uncoupled: bool) -> tuple[Turn, ...]:
    """Return all runs in their order.

    Every size has its turn in each repetition, and every second repetition goes backwards, so that a
    machine that slows down or speeds up over the minutes treats all sizes alike. The uncoupled run of a
    size is next to its coupled one; one rank has nothing to be uncoupled from.
    """
    order = []
    for repetition in range(repeats):
        forward = []
        for size in grid:
            forward.append(Turn(size=size, repetition=repetition, uncoupled=False))
            if uncoupled and size.ranks > 1:
                forward.append(Turn(size=size, repetition=repetition, uncoupled=True))
        order += forward if repetition % 2 == 0 else forward[::-1]
    return tuple(order)


def job_of(turn: Turn, asked: Scale) -> Job:
    """Return the job of one run: the first hosts that take that many ranks, and the ranks' number."""
    hosts = hosts_for(turn.size, asked.job.hosts, oversubscribe=asked.job.oversubscribe)
    if hosts is None:
        raise RequestError(Fault(where="--grid", what=f"{turn.size} does not fit on the hosts there"))
    require = () if turn.uncoupled else applicable(asked.job.require, turn.size)
    return replace(asked.job, hosts=hosts, np=turn.size.ranks, uncoupled=turn.uncoupled, require=require)


def applicable(words: Sequence[str], size: Size) -> tuple[str, ...]:
    """Return the words of ``--require`` that say something of a size: one rank exchanges nothing."""
    return tuple(word for word in words if (size.slots > 1 if word in WITHIN else size.hosts > 1))


def faults_of(asked: Scale) -> tuple[Fault, ...]:
    """Return what is wrong with the numbers asked for."""
    found = []
    repeats = f"{asked.repeats} repetitions"
    if asked.repeats < 1:
        found.append(Fault(where="--repeats", what=repeats, hint="use at least 1; 3 show a spread"))
    if asked.repeats > MOST_REPEATS:
        found.append(Fault(where="--repeats", what=repeats, hint=f"at most {MOST_REPEATS}; 3 show a spread"))
    if not 0 <= asked.warmup < 1:
        hint = "use a part from 0 up to, not including, 1"
        found.append(Fault(where="--warmup", what=f"{asked.warmup} of the time", hint=hint))
    found += [
        Fault(where="--require", what=f"{word} says nothing of any of these sizes", hint="see --grid")
        for word in asked.job.require
        if not any(applicable([word], size) for size in asked.grid)
    ]
    return (*found, *run_file.faults_of_name(asked.name))


def scale(
    asked: Scale,
    *,
    launch: Launcher,
    environ: Mapping[str, str],
    now: Callable[[], float],
    date: str,
    say: Callable[[str], None],
    warn: Callable[[str], None],
    keep: Callable[[Run], None],
) -> Run:
    """Make all runs and return what they measured.

    A run that fails ends it: RankError with that failure's exit code. A run whose rate cannot be read ends
    it: RequestError. In both cases ``keep`` has been given what was measured before, and the reason.
    """
    order = turns(asked.grid, asked.repeats, uncoupled=asked.uncoupled)
    measured: Measured = {}
    proofs: Proofs = {}
    context = _context(asked, date)
    for number, turn in enumerate(order, 1):
        head = f"run {number} of {len(order)}: {turn}"
        say(head)

        def tell(text: str, head: str = head) -> None:
            say(f"{head}: {text}")

        meter = Meter(ranks=turn.size.ranks, warmup=asked.warmup, now=now, warn=warn, say=tell)
        try:
            outcome = launch(job_of(turn, asked), environ=environ, listener=meter)
            context = with_facts(context, outcome, meter.contexts, cpu=asked.cpu)
            _keep_proof(proofs, turn, outcome.proof)
            sample = _sample(turn, outcome, meter)
        except BaseException as error:
            keep(_run(asked, context, measured, proofs, failure=_why(turn, error)))
            raise
        measured.setdefault((turn.size, turn.uncoupled), []).append((turn.repetition, sample))
        say(f"{head}: {sample.rate:,.1f}/s\n")
        keep(_run(asked, context, measured, proofs))
    return _run(asked, context, measured, proofs)


def _keep_proof(proofs: Proofs, turn: Turn, proof: TransportProof | None) -> None:
    """Note the proof of a coupled run, unless an earlier one of this size has a warning."""
    known = proofs.get(turn.size)
    warned = known is not None and any(host.warnings for host in known.hosts)
    if proof is not None and not turn.uncoupled and not warned:
        proofs[turn.size] = proof


def _context(asked: Scale, date: str) -> Context:
    """Return what is known before the first run."""
    return Context(
        command=asked.job.command,
        date=date,
        lab=asked.lab,
        ringleader=__version__,
        binding=asked.job.bind,
        threads=asked.job.threads,
    )


def _why(turn: Turn, error: BaseException) -> str:
    """Return one line on what ended the scaling run."""
    what = error.faults[0].what if isinstance(error, RingleaderError) else type(error).__name__
    return f"{turn}: {what.splitlines()[0]}"


def _sample(turn: Turn, outcome: Outcome, meter: Meter) -> Sample:
    """Return what a finished run measured; RankError where it failed, RequestError where it told no rate."""
    if outcome.exit_code != 0:
        raise RankError(_failed(turn, outcome, meter.tail), exit_code=outcome.exit_code)
    sample = meter.sample()
    if sample is None:
        raise RequestError(meter.why_none())
    return sample


def _failed(turn: Turn, outcome: Outcome, tail: Sequence[str]) -> Fault:
    """Say what happened as the launcher says it, after the last lines the ranks printed."""
    what = outcome.reason or f"{outcome.whose} ended with exit code {outcome.exit_code}"
    return Fault(where=str(turn), what="".join([what, *(f"\n    {line}" for line in tail)]))


def _run(
    asked: Scale,
    context: Context,
    measured: Measured,
    proofs: Proofs,
    failure: str = "",
) -> Run:
    def samples(size: Size, uncoupled: bool) -> tuple[Sample, ...]:
        return tuple(sample for _, sample in sorted(measured.get((size, uncoupled), ()), key=lambda m: m[0]))

    points = tuple(
        Point(
            hosts=size.hosts,
            slots=size.slots,
            samples=samples(size, False),
            uncoupled=samples(size, True),
            transport=proofs.get(size),
        )
        for size in asked.grid
    )
    return Run(
        name=asked.name,
        context=context,
        points=points,
        repeats=asked.repeats,
        warmup=asked.warmup,
        failure=failure,
    )
