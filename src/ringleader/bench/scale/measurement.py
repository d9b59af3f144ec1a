"""One job at several sizes, coupled and uncoupled, several times over: which runs, and making them.

After every single run the caller's ``keep`` is given all that was measured so far, so nothing is lost when a
later run fails, and a stored run can be resumed. `sizes` says what a size is, `meter` reads its rate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ringleader import __version__
from ringleader.bench import run_file
from ringleader.bench.scale.meter import Meter
from ringleader.bench.scale.sizes import batch_faults, command_of, hosts_for
from ringleader.errors import Fault, RankError, RequestError, RingleaderError, refuse
from ringleader.fabric.transport_proof.proof import TransportProof
from ringleader.fabric.transport_proof.requirement import WITHIN
from ringleader.measurements.run_context import Outcome, software_changes, with_facts
from ringleader.metrics import Sample, in_round
from ringleader.plan.job import Job
from ringleader.scaling import COUPLED, IN_STEP, UNCOUPLED, Context, Point, Run, Size, too_wide

LAST_RESORT = "wall clock"
"""Source of rates that include all that a run does; none of another source compares with them."""
_OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemory|\bOOM\b", re.IGNORECASE)
"""In what a rank printed."""
MOST_REPEATS = 1000
"""More than this is taken for a mistake."""


Launcher = Callable[..., Outcome]
"""Runs a job to its end, given ``environ`` and a `Meter` as ``listener``: `launch_job.launch` for example."""


@dataclass(frozen=True, kw_only=True)
class ScaleRequest:
    """What was asked for."""

    run: Run
    """What is to be measured: a run without samples whose context has only what is not the job's, or the one
    that is resumed."""
    job: Job
    """Hosts in it are those the sizes may use; its ``np`` is ignored. ``{ranks}``, ``{hosts}`` and
    ``{batch}`` in its command stand for each size's own."""
    cpu: str = ""
    """Processor of the machine that launches, for ranks that do not report theirs."""
    most_hosts: int | None = None
    """Sizes of more hosts are left to another call; ``None``: none are."""

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The sizes, in the order of the grid."""
        return tuple(point.size for point in self.run.points)

    def here(self, runs: Sequence[SizeRun]) -> tuple[SizeRun, ...]:
        """Return the runs that this call makes."""
        most = self.most_hosts
        return tuple(one for one in runs if most is None or one.size.hosts <= most)

    def begun(self, date: str) -> Run:
        """Return the run before its next job."""
        if self.run.context.command:
            return replace(self.run, resumed=(*self.run.resumed, date))
        context = replace(
            self.run.context,
            command=self.job.command,
            date=date,
            ringleader=__version__,
            binding=self.job.bind,
            threads=self.job.threads,
        )
        return replace(self.run, context=context)


def points_of(sizes: Sequence[Size], known: Sequence[Point] = ()) -> tuple[Point, ...]:
    """Return points of sizes: those that are known, and others without samples."""
    found = {point.size: point for point in known}
    return tuple(found.get(size) or Point(hosts=size.hosts, slots=size.slots) for size in sizes)


def faults_of(asked: ScaleRequest) -> tuple[Fault, ...]:
    """Return what is wrong with the numbers asked for."""
    run, found = asked.run, list[Fault]()

    def add(where: str, what: str, hint: str) -> None:
        found.append(Fault(where=where, what=what, hint=hint))

    if run.repeats < 1:
        add("--repeats", f"{run.repeats} repetitions", "use at least 1; 3 show a spread")
    if run.repeats > MOST_REPEATS:
        add("--repeats", f"{run.repeats} repetitions", f"at most {MOST_REPEATS}; 3 show a spread")
    if run.budget is not None and not run.budget > 0:
        add("--budget", f"{run.budget:g} seconds", "use a number above 0")
    if not 0 <= run.warmup < 1:
        add("--warmup", f"{run.warmup} of the time", "use a part from 0 up to, not including, 1")
    for word in asked.job.require:
        if not any(applicable([word], size) for size in asked.sizes):
            add("--require", f"{word} says nothing of any of these sizes", "see --grid")
    found += batch_faults(asked.job.command, asked.sizes, strong=run.strong, global_batch=run.global_batch)
    return (*found, *run_file.faults_of_name(run.name))


# --- which runs -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SizeRun:
    """One run of the job at one size."""

    size: Size
    kind: str = COUPLED
    """What its ranks are."""
    repetition: int = 0

    def __str__(self) -> str:
        return f"{self.size} {self.kind}, repetition {self.repetition + 1}"


def runs_left(run: Run) -> tuple[SizeRun, ...]:
    """Return the runs that are still to be made, in their order."""
    several = [point.size for point in run.points if point.ranks > 1]
    in_step = several if run.in_step == "all" else []
    if run.in_step == "largest" and several:
        in_step = [max(several, key=lambda size: (size.ranks, size.hosts))]
    return _left(run, run.points, run.repeats, in_step)


def further_runs(run: Run, *, spent: float, made: int) -> tuple[SizeRun, ...]:
    """Return one more repetition of the sizes that are `too_wide`, and of the baseline they are paired with.

    Nothing if it would end after the budget, as ``made`` runs took ``spent`` seconds. A size that is narrow
    is never repeated again, so the n-th samples of all sizes are still of one repetition.
    """
    names = too_wide(run).keys()
    if not names or run.budget is None:
        return ()
    points = [point for point in run.points if point.name in {*names, run.baseline}]
    repeats = 1 + min(len(point.samples) for point in points)
    left = _left(run, points, repeats, [point.size for point in points if point.in_step])
    return left if spent * (1 + len(left) / max(1, made)) <= run.budget else ()


def _left(run: Run, points: Sequence[Point], repeats: int, in_step: Collection[Size]) -> tuple[SizeRun, ...]:
    """Return the runs without those that have a sample.

    Every size is run in each repetition, its uncoupled run next to its coupled one; one rank has nothing to
    be uncoupled from.
    """
    done = {(point.size, kind): len(samples) for point in points for kind, samples in point.kinds}
    order = []
    for point in points:
        kinds = {COUPLED: True, UNCOUPLED: run.uncoupled, IN_STEP: point.size in in_step}
        order += [
            (point.size, kind)
            for kind, is_run in kinds.items()
            if is_run and (point.ranks > 1 or kind == COUPLED)
        ]
    return tuple(
        SizeRun(size=size, kind=kind, repetition=number)
        for number in range(repeats)
        for size, kind in in_round(order, number)
        if number >= done[size, kind]
    )


def job_of(one: SizeRun, asked: ScaleRequest) -> Job:
    """Return the job of one run: the first hosts that take that many ranks, and the ranks' number."""
    hosts = hosts_for(one.size, asked.job.hosts, oversubscribe=asked.job.oversubscribe)
    if hosts is None:
        raise RequestError(f"{one.size} does not fit on the hosts there", where="--grid")
    return replace(
        asked.job,
        command=command_of(asked.job.command, one.size, asked.run.global_batch),
        hosts=hosts,
        np=one.size.ranks,
        uncoupled=one.kind != COUPLED,
        in_step=one.kind == IN_STEP,
        require=applicable(asked.job.require, one.size) if one.kind == COUPLED else (),
    )


def applicable(words: Sequence[str], size: Size) -> tuple[str, ...]:
    """Return the words of ``--require`` that say something of a size: one rank exchanges nothing."""
    return tuple(word for word in words if (size.slots > 1 if word in WITHIN else size.hosts > 1))


# --- making them ------------------------------------------------------------------------------------------


def measure(
    asked: ScaleRequest,
    *,
    launch: Launcher,
    environ: Mapping[str, str],
    now: Callable[[], float],
    date: str,
    say: Callable[[str], None],
    warn: Callable[[str], None],
    keep: Callable[[Run], None],
) -> Run:
    """Make all runs that are left, and return what was measured.

    A run that fails ends it: RankError with that failure's exit code. A run whose rate cannot be read ends
    it: RequestError. In both cases ``keep`` has been given what was measured before, and the reason. Only
    barrier-only ranks that fail are left out, with a warning: a script may depend on what it
    receives from others, and receives nothing from these.
    """
    run = asked.begun(date)
    before, order = run.context, list(asked.here(runs_left(run)))
    failed: set[Size] = set()
    begun = now()

    def due() -> Iterator[SizeRun]:
        yield from tuple(order)
        while further := asked.here(further_runs(run, spent=now() - begun, made=len(order))):
            order.extend(further)
            yield from further

    for number, one in enumerate(due(), 1):
        if one.kind == IN_STEP and one.size in failed:
            continue
        head = f"run {number} of {len(order)}: {one}"
        say(head)

        def tell(text: str, head: str = head) -> None:
            say(f"{head}: {text}")

        meter = Meter(
            ranks=one.size.ranks, warmup=run.warmup, now=now, warn=warn, say=tell, explains=number == 1
        )
        try:
            outcome = launch(job_of(one, asked), environ=environ, listener=meter)
            meter.explain()
            context = with_facts(run.context, outcome, meter.contexts, cpu=asked.cpu)
            _check_software(before, context)
            point = next(point for point in run.points if point.size == one.size)
            point = _with_proof(point, one, outcome.proof)
            run = _with_point(replace(run, context=context), point)
            sample = replace(_sample(one, run, outcome, meter), sitting=len(run.resumed))
        except BaseException as error:
            if one.kind == IN_STEP and isinstance(error, RankError):
                warn(f"{_why(one, error)}; barrier-only ranks are left out at {one.size}")
                failed.add(one.size)
                continue
            keep(replace(run, failure=_why(one, error)))
            raise
        run = _with_point(run, point.with_sample(one.kind, sample))
        say(f"{head}: {sample.rate:,.1f}/s\n")
        keep(run)
    return run


def _with_point(run: Run, point: Point) -> Run:
    return replace(run, points=tuple(point if old.size == point.size else old for old in run.points))


def _with_proof(point: Point, one: SizeRun, proof: TransportProof | None) -> Point:
    """Note the proof of a coupled run, unless an earlier one of this size has a warning."""
    known = point.transport
    warned = known is not None and any(host.warnings for host in known.hosts)
    return point if proof is None or one.kind != COUPLED or warned else replace(point, transport=proof)


def _check_software(before: Context, found: Context) -> None:
    """Raise RequestError where a resumed run runs with other software than before."""
    hint = "begin a new run with another --name; compare the two with ringleader report"
    changes = software_changes(before, found)
    refuse(Fault(where="--resume", what=change, hint=hint) for change in changes)


def _why(one: SizeRun, error: BaseException) -> str:
    """Return one line on what ended the scaling run."""
    what = error.faults[0].what if isinstance(error, RingleaderError) else type(error).__name__
    return f"{one}: {what.splitlines()[0]}"


def _sample(one: SizeRun, run: Run, outcome: Outcome, meter: Meter) -> Sample:
    """Return what a finished run measured; RankError where it failed, RequestError without a rate."""
    if outcome.exit_code != 0:
        what = outcome.reason or f"{outcome.whose} ended with exit code {outcome.exit_code}"
        lines = "".join(f"\n    {line}" for line in meter.tail)
        hint = ""
        if (one.size.ranks == 1 or one.kind != COUPLED) and _OUT_OF_MEMORY.search(f"{what}{lines}"):
            most = max(point.slots for point in run.points)
            hint = "if the model needs several GPUs, compare with a size that it fits on, in a new run: "
            hint += f"--baseline 1x{max(most, 2)} --no-uncoupled"
        code, whose = outcome.exit_code, outcome.whose
        raise RankError(f"{what}{lines}", where=str(one), exit_code=code, whose=whose, hint=hint)
    sample = meter.sample() or meter.whole_run(strong=run.strong)
    if sample is None:
        raise RequestError(meter.why_none())
    known = {old.source for point in run.points for _kind, ones in point.kinds for old in ones}
    if LAST_RESORT in known ^ {sample.source} and known:
        what = f"was measured by {sample.source}, runs before it by {', '.join(sorted(known))}"
        raise RequestError(what, where=str(one), hint="let the script make steps at every size")
    if run.strong and sample.source == "steps" and run.global_batch is None:
        # Whatever a step's batch is, it is the same at every size: the job's steps are its rate.
        slowest = None if sample.slowest_rate is None else sample.slowest_rate / one.size.ranks
        return replace(sample, rate=sample.rate / one.size.ranks, slowest_rate=slowest)
    if not run.strong or sample.source not in ("epochs", "steps"):
        return sample
    # Batches become samples: in strong scaling a batch is not the same at every size.
    if run.global_batch is None:
        what = "Keras' lines tell batches, and with --strong those are not the same at every size"
        hint = "add --global-batch, or call ringleader.progress(samples=batch_size) after each step"
        raise RequestError(what, where="--strong", hint=hint)
    batch = run.global_batch // one.size.ranks
    slowest = None if sample.slowest_rate is None else sample.slowest_rate * batch
    return replace(
        sample, rate=sample.rate * batch, slowest_rate=slowest, source=f"{sample.source} of samples"
    )
