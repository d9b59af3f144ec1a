"""One job at several sizes, coupled and uncoupled, several times over.

The order is decided first (``turn_order``), then done (``scale``). After every single run the caller's
``keep`` is given all that was measured so far, so nothing is lost when a later run fails, and a stored run
can be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ringleader import __version__
from ringleader.bench import run_file
from ringleader.bench.grid import Size, hosts_for
from ringleader.bench.meter import Meter
from ringleader.bench.size_command import batch_faults, command_of
from ringleader.bench.turn_order import Turn, further_turns, in_step_sizes, turns, turns_left
from ringleader.errors import Fault, RankError, RequestError, RingleaderError
from ringleader.fabric.transport_proof.proof import TransportProof
from ringleader.fabric.transport_proof.requirement import WITHIN
from ringleader.measurements import run_context
from ringleader.measurements.run_context import software_changes, with_facts
from ringleader.metrics import Sample
from ringleader.plan.job import Job
from ringleader.scaling import Context, Point, Request, Run


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
    """Hosts in it are those the sizes may use; its ``np`` is not looked at. ``{ranks}``, ``{hosts}`` and
    ``{batch}`` in its command stand for each size's own."""
    grid: tuple[Size, ...]
    repeats: int
    warmup: float
    """Part of the common training time that is left out at its beginning."""
    uncoupled: bool = True
    """Also run as many ranks that exchange nothing."""
    in_step: str = "none"
    """At which sizes also run ranks that only meet where they would exchange; see `IN_STEP_CHOICES`."""
    budget: float | None = None
    """Seconds for repetitions beyond ``repeats``, of sizes that are `too_wide`."""
    strong: bool = False
    """The global batch is the same at every size."""
    global_batch: int | None = None
    """Samples of one step over all ranks, of which ``{batch}`` is each rank's share."""
    baseline: str = "1x1"
    """Size that the others are measured against."""
    request: Request = field(default_factory=Request)
    """How it was asked for."""
    lab: bool = False
    """The hosts are a lab's."""
    image: str = ""
    """Image of the Pods, on Kubernetes."""
    cpu: str = ""
    """Processor of the machine that launches, for ranks that do not tell theirs."""


Measured = dict[tuple[Size, str], list[tuple[int, Sample]]]
"""(size, `Turn.kind`) → (repetition, what it measured)."""
Proofs = dict[Size, TransportProof]
"""Size → the proof of one of its coupled runs; see ``Point.transport``."""


def job_of(turn: Turn, asked: Scale) -> Job:
    """Return the job of one run: the first hosts that take that many ranks, and the ranks' number."""
    hosts = hosts_for(turn.size, asked.job.hosts, oversubscribe=asked.job.oversubscribe)
    if hosts is None:
        raise RequestError(Fault(where="--grid", what=f"{turn.size} does not fit on the hosts there"))
    require = () if turn.uncoupled else applicable(asked.job.require, turn.size)
    return replace(
        asked.job,
        command=command_of(asked.job.command, turn.size, asked.global_batch),
        hosts=hosts,
        np=turn.size.ranks,
        uncoupled=turn.uncoupled,
        in_step=turn.in_step,
        require=require,
    )


def applicable(words: Sequence[str], size: Size) -> tuple[str, ...]:
    """Return the words of ``--require`` that say something of a size: one rank exchanges nothing."""
    return tuple(word for word in words if (size.slots > 1 if word in WITHIN else size.hosts > 1))


def turns_of(asked: Scale) -> tuple[Turn, ...]:
    """Return all runs in their order."""
    in_step = in_step_sizes(asked.in_step, asked.grid)
    return turns(asked.grid, asked.repeats, uncoupled=asked.uncoupled, in_step=in_step)


def faults_of(asked: Scale) -> tuple[Fault, ...]:
    """Return what is wrong with the numbers asked for."""
    found = []
    repeats = f"{asked.repeats} repetitions"
    if asked.repeats < 1:
        found.append(Fault(where="--repeats", what=repeats, hint="use at least 1; 3 show a spread"))
    if asked.repeats > MOST_REPEATS:
        found.append(Fault(where="--repeats", what=repeats, hint=f"at most {MOST_REPEATS}; 3 show a spread"))
    if asked.budget is not None and not asked.budget > 0:
        found.append(Fault(where="--budget", what=f"{asked.budget:g} seconds", hint="use a number above 0"))
    if not 0 <= asked.warmup < 1:
        hint = "use a part from 0 up to, not including, 1"
        found.append(Fault(where="--warmup", what=f"{asked.warmup} of the time", hint=hint))
    found += [
        Fault(where="--require", what=f"{word} says nothing of any of these sizes", hint="see --grid")
        for word in asked.job.require
        if not any(applicable([word], size) for size in asked.grid)
    ]
    found += batch_faults(asked.job.command, asked.grid, strong=asked.strong, global_batch=asked.global_batch)
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
    stored: Run | None = None,
) -> Run:
    """Make all runs, or those that ``stored`` lacks, and return what was measured.

    A run that fails ends it: RankError with that failure's exit code. A run whose rate cannot be read ends
    it: RequestError. In both cases ``keep`` has been given what was measured before, and the reason. Only
    ranks in step that fail are left out, with a warning: a script may go by what it was told by others, and
    these tell it nothing.
    """
    order = list(turns_left(turns_of(asked), stored))
    measured, proofs = _known(stored)
    context = _context(asked, date) if stored is None else stored.context
    resumed = () if stored is None else (*stored.resumed, date)
    failed: set[Size] = set()
    begun = now()

    def due() -> Iterator[Turn]:
        yield from tuple(order)
        while further := further_turns(
            _run(asked, context, measured, proofs, resumed), spent=now() - begun, made=len(order)
        ):
            order.extend(further)
            yield from further

    for number, turn in enumerate(due(), 1):
        if turn.in_step and turn.size in failed:
            continue
        head = f"run {number} of {len(order)}: {turn}"
        say(head)

        def tell(text: str, head: str = head) -> None:
            say(f"{head}: {text}")

        meter = Meter(ranks=turn.size.ranks, warmup=asked.warmup, now=now, warn=warn, say=tell)
        try:
            outcome = launch(job_of(turn, asked), environ=environ, listener=meter)
            found = with_facts(context, outcome, meter.contexts, cpu=asked.cpu)
            _check_software(stored, found)
            context = found
            _keep_proof(proofs, turn, outcome.proof)
            sample = replace(_sample(turn, asked, outcome, meter), sitting=len(resumed))
        except BaseException as error:
            if turn.in_step and isinstance(error, RankError):
                warn(f"{_why(turn, error)}; ranks in step are left out at {turn.size}")
                failed.add(turn.size)
                continue
            keep(_run(asked, context, measured, proofs, resumed, failure=_why(turn, error)))
            raise
        measured.setdefault((turn.size, turn.kind), []).append((turn.repetition, sample))
        say(f"{head}: {sample.rate:,.1f}/s\n")
        keep(_run(asked, context, measured, proofs, resumed))
    return _run(asked, context, measured, proofs, resumed)


def _known(stored: Run | None) -> tuple[Measured, Proofs]:
    """Return what a stored run has measured."""
    measured: Measured = {}
    proofs: Proofs = {}
    for point in () if stored is None else stored.points:
        size = Size(hosts=point.hosts, slots=point.slots)
        for kind, samples in point.kinds:
            measured[size, kind] = list(enumerate(samples))
        if point.transport is not None:
            proofs[size] = point.transport
    return measured, proofs


def _check_software(stored: Run | None, found: Context) -> None:
    """Raise RequestError where a resumed run has met other software than before: its numbers are others."""
    changes = [] if stored is None else software_changes(stored.context, found)
    if changes:
        hint = "begin a new run with another --name; compare the two with ringleader report"
        raise RequestError([Fault(where="--resume", what=change, hint=hint) for change in changes])


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
        image=asked.image,
    )


def _why(turn: Turn, error: BaseException) -> str:
    """Return one line on what ended the scaling run."""
    what = error.faults[0].what if isinstance(error, RingleaderError) else type(error).__name__
    return f"{turn}: {what.splitlines()[0]}"


def _sample(turn: Turn, asked: Scale, outcome: Outcome, meter: Meter) -> Sample:
    """Return what a finished run measured; RankError where it failed, RequestError where it told no rate."""
    if outcome.exit_code != 0:
        raise RankError(_failed(turn, outcome, meter.tail), exit_code=outcome.exit_code)
    sample = meter.sample()
    if sample is None:
        raise RequestError(meter.why_none())
    if asked.strong and sample.source == "epochs":
        return _in_samples(sample, turn, asked.global_batch)
    return sample


def _in_samples(sample: Sample, turn: Turn, global_batch: int | None) -> Sample:
    """Turn batches per second into samples: in strong scaling a batch is not the same at every size."""
    if global_batch is None:
        what = "Keras' lines tell batches, and with --strong those are not the same at every size"
        hint = "add --global-batch, or call ringleader.progress(samples=batch_size) after each step"
        raise RequestError(Fault(where="--strong", what=what, hint=hint))
    batch = global_batch // turn.size.ranks
    slowest = None if sample.slowest_rate is None else sample.slowest_rate * batch
    return replace(sample, rate=sample.rate * batch, slowest_rate=slowest, source="epochs of samples")


def _failed(turn: Turn, outcome: Outcome, tail: Sequence[str]) -> Fault:
    """Say what happened as the launcher says it, after the last lines the ranks printed."""
    what = outcome.reason or f"{outcome.whose} ended with exit code {outcome.exit_code}"
    return Fault(where=str(turn), what="".join([what, *(f"\n    {line}" for line in tail)]))


def _run(
    asked: Scale,
    context: Context,
    measured: Measured,
    proofs: Proofs,
    resumed: tuple[str, ...],
    failure: str = "",
) -> Run:
    def samples(size: Size, kind: str) -> tuple[Sample, ...]:
        return tuple(sample for _, sample in sorted(measured.get((size, kind), ()), key=lambda m: m[0]))

    points = tuple(
        Point(
            hosts=size.hosts,
            slots=size.slots,
            samples=samples(size, "coupled"),
            uncoupled=samples(size, "uncoupled"),
            in_step=samples(size, "in step"),
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
        strong=asked.strong,
        global_batch=asked.global_batch,
        baseline=asked.baseline,
        uncoupled=asked.uncoupled,
        in_step=asked.in_step,
        budget=asked.budget,
        request=asked.request,
        resumed=resumed,
    )
