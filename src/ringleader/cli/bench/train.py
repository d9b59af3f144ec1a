"""``ringleader bench train``: training steps of a known model, coupled in several ways, round by round."""

from __future__ import annotations

import math
import os
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringleader.agents.usable_cores import usable_cpus
from ringleader.bench.training.data_folder import DataError, find_data
from ringleader.bench.training.measured_profile import FILE as PROFILE
from ringleader.bench.training.measured_profile import profile_text
from ringleader.bench.training.training_plan import MODELS, SYNTHETIC, TrainingPlan, faults_of
from ringleader.cli import interrupts
from ringleader.cli.bench import bench_options
from ringleader.cli.bench.bench_options import EVERYDAY as SHARED_EVERYDAY
from ringleader.cli.bench.bench_options import BenchOptions
from ringleader.cli.bench.collectives import number_of_ranks
from ringleader.cli.options.host_options import overridden
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.output import Result, table
from ringleader.cli.run.command import dry_run_text
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import Command
from ringleader.confidence_interval import Interval, RatioComparison, interval_of_mean
from ringleader.errors import refuse
from ringleader.measurements.training import ALONE, ARMS, IN_STEP, PARTS, UNCOUPLED, Arm, TrainingRun
from ringleader.metrics import Spread, in_round
from ringleader.number_format import NONE, plural, seconds, thousands
from ringleader.option_fields import group, option
from ringleader.plan.job import Job
from ringleader.text_files import write_text

if TYPE_CHECKING:
    from ringleader.bench.training.training_job import TrainingAnswers


FEWEST_STEPS, ONE_RANK, LONG_WAIT = 20, 0.8, 0.02
"""A rank is named that came last in so large a part of at least this many steps, with this long a wait."""


def as_text(run: TrainingRun) -> str:
    """Return the table of arms, that of the split, and what follows."""
    every = run.arms if run.alone is None else (*run.arms, run.alone)
    measured = [arm for arm in every if arm.rates]
    parts = [title(run)]
    if measured:
        parts += ["", _arms_table(run, measured)]
    if any(arm.split for arm in measured):
        count = plural(min(len(arm.rates) for arm in measured), "repetition")
        parts += ["", f"A step: means over steps and ranks, ± 95% of {count}", "", _split_table(measured)]
    notes = [f"{arm.name}: {arm.note}" for arm in every if arm.note]
    said = [*sentences(run), *([f"Left out: {'; '.join(notes)}."] if notes else [])]
    parts += ["", *said] if said else []
    parts += [f"! {run.failure}"] if run.failure else []
    return "\n".join(parts) + "\n"


def title(run: TrainingRun) -> str:
    """Return the lines that say what was trained, how, and where."""
    batch = f"{thousands(run.batch)} {run.unit}" if run.batch >= 1000 else f"{run.batch} {run.unit}"
    size = f"{run.parameters / 1e6:.2f} million weights, {run.gradient_bytes / 2**20:.1f} MiB of gradients"
    ranks = plural(run.ranks, "rank") + (f", {run.per_host} on each host" if run.per_host else "")
    data = "synthetic data" if run.data == "synthetic" else f"data of {run.data}"
    lines = [f"{run.model}: {size}", f"{batch} a step and rank, {run.precision}, {run.optimizer}, {data}"]
    threads = f", {plural(run.context.threads, 'thread')} each" if run.context.threads else ""
    on = f"; computing on {run.device}" if run.device else ""
    shared = " (all hosts share one machine)" if run.context.one_machine else ""
    return "\n".join([*lines, f"{ranks}{shared}{threads}{on}"])


def _arms_table(run: TrainingRun, arms: Sequence[Arm]) -> str:
    compared = [base for base in (UNCOUPLED, IN_STEP) if any(arm.name == base for arm in arms)]
    names = ["arm", f"{run.unit}/s", "95%", "slowest step"]
    names += [word for base in compared for word in (f"vs {base}", "95%")]
    rows = []
    for arm in arms:
        rate = Spread.of_ratios(arm.rates)
        row = [
            arm.name,
            thousands(rate.median),
            _range(rate.interval),
        ]
        row.append(seconds(statistics.fmean(arm.step_seconds)) if arm.step_seconds else NONE)
        for base in compared:
            # One rank alone has another number of ranks: a ratio of sums would say nothing.
            ratio = None if arm.name in (base, ALONE, UNCOUPLED) else run.against(arm.name, base)
            row += [NONE, NONE] if ratio is None else [_percent(ratio.ratio), _percents(ratio.interval)]
        rows.append(row)
    return table(rows, names, align="lr")


def _split_table(arms: Sequence[Arm]) -> str:
    shown = [arm for arm in arms if arm.split is not None]
    rows = []
    for part in PARTS:
        cells = [_with_error([getattr(one, part) for one in arm.splits]) for arm in shown]
        rows.append([part, *cells])
    rows.append(["step", *(_with_error([one.total for one in arm.splits]) for arm in shown)])
    names = ["", *(arm.name for arm in shown)]
    return table(rows, names, align="lr")


def _with_error(values: Sequence[float]) -> str:
    """Return a mean and half its interval: ``43.2 ms ± 1.10``, in the mean's unit."""
    if not values:
        return NONE
    mean, interval = statistics.fmean(values), interval_of_mean(values)
    if mean <= 0:
        return NONE
    text = seconds(mean)
    if interval is None:
        return text
    scale = {"s": 1.0, "ms": 1e3, "µs": 1e6}[text.rpartition(" ")[2]]
    half = (interval.high - interval.low) / 2 * scale
    return f"{text} ± {half:.0f}" if half >= 10 else f"{text} ± {half:.2g}"


def sentences(run: TrainingRun) -> list[str]:
    """Return what the numbers say, and nothing that their intervals do not carry."""
    found = []
    if meeting := run.against(IN_STEP, UNCOUPLED):
        found.append(_cost("Synchronizing once per step, with nothing exchanged,", meeting))
    first = next((arm for arm in run.arms if arm.rates and arm.name not in (UNCOUPLED, IN_STEP, ALONE)), None)
    if first is not None and (coupled := run.against(first.name, IN_STEP)):
        found.append(_cost(f"{first.name}, against ranks that only synchronize,", coupled))
    return [*found, *(_latest(first) if first is not None else []), *_sharing(run)]


def _latest(arm: Arm) -> list[str]:
    """Return which rank the others wait for, where it is one rank and they wait for long; else nothing."""
    steps = sum(arm.came_last)
    if arm.split is None or steps < FEWEST_STEPS:
        return []
    rank = max(range(len(arm.came_last)), key=lambda one: arm.came_last[one])
    part, waiting = arm.came_last[rank] / steps, arm.split.waiting / arm.split.total
    if part < ONE_RANK or waiting < LONG_WAIT:
        return []
    text = f"{arm.name}: ranks wait for rank {rank}, which came last in {100 * part:.0f}% of the steps"
    return [f"{text} ({_percent(waiting)} of a mean step)."]


def _cost(what: str, ratio: RatioComparison) -> str:
    if ratio.interval is None:
        return f"{what} costs {_percent(1 - ratio.ratio)} of the rate (one repetition: no interval)."
    low, high = 1 - ratio.interval.high, 1 - ratio.interval.low
    if low <= 0:
        return f"{what} costs nothing that stands out from chance (95%: {_percents(ratio.interval)})."
    return f"{what} costs {_percent(1 - ratio.ratio)} of the rate (95%: {100 * low:.1f}–{100 * high:.1f})."


def _sharing(run: TrainingRun) -> list[str]:
    """Return what independent ranks reach of as many ranks that each have the machine for themselves."""
    ratio = run.against(UNCOUPLED, ALONE)
    if ratio is None:
        return []
    part = ratio.ratio / run.ranks
    text = f"Independent ranks together reach {_percent(part)} of {run.ranks} times one rank alone"
    if ratio.interval is None:
        return [f"{text} (one repetition: no interval)."]
    interval = Interval(low=ratio.interval.low / run.ranks, high=ratio.interval.high / run.ranks)
    if not interval.excludes(1.0):
        what = f"{run.ranks} times one rank alone and independent ranks together"
        return [f"Between {what} nothing stands out from chance (95%: {_percents(interval)})."]
    return [f"{text} (95%: {_percents(interval)})."]


def _percent(part: float) -> str:
    return f"{100 * part:.1f}%"


def _percents(interval: Interval | None) -> str:
    if interval is None:
        return NONE
    high = 100 * interval.high
    return (
        f"{100 * interval.low:.1f}–{high:.1f}%" if high < 1000 else f"{100 * interval.low:.1f}–{high:,.0f}%"
    )


def _range(interval: Interval | None) -> str:
    return NONE if interval is None else f"{thousands(interval.low)}–{thousands(interval.high)}"


def _tf_cnn_row(step: int, seconds: Sequence[float], batch: int, loss: float) -> str:
    rates = [batch / each for each in seconds]
    rate = batch / statistics.fmean(seconds)
    uncertainty = statistics.pstdev(rates) / math.sqrt(len(rates))
    middle = statistics.median(rates)
    jitter = 1.4826 * statistics.median([abs(each - middle) for each in rates])
    return f"{step}\timages/sec: {rate:.1f} +/- {uncertainty:.1f} (jitter = {jitter:.1f})\t{loss:.3f}"


def tf_cnn_lines(seconds: Sequence[float], losses: Sequence[float], *, batch: int, ranks: int) -> list[str]:
    """Return the step times of one rank as tf_cnn_benchmarks prints them, after the configuration.

    Rows of the first step and every tenth, and the total. From tensorflow/benchmarks, benchmark_cnn.py: of
    the steps since the warm-up, the rate is batch over the mean step; ``+/-`` the standard deviation of the
    steps' rates over √n; jitter 1.4826 times the median distance from their median. Rows are the rate of this
    process. The last line is that of all of them: the mean rate over the whole time, times their number.
    """
    shown = [n for n in range(1, len(seconds) + 1) if n == 1 or n % 10 == 0]
    rows = [_tf_cnn_row(n, seconds[:n], batch, losses[n - 1]) for n in shown]
    rule = "-" * 64
    total = ranks * batch * len(seconds) / sum(seconds)
    return ["Done warm up", "Step\tImg/sec\ttotal_loss", *rows, rule, f"total images/sec: {total:.2f}", rule]


TABLE, TF_CNN = "table", "tf_cnn"


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options, as they were written."""

    plan: Mapping[str, Any] = group(TrainingPlan, given=True)
    format: str = option(
        "Print a table, or the results of the first variant on rank 0 in the format of tf_cnn_benchmarks.",
        default=TABLE,
        metavar=f"{TABLE}|{TF_CNN}",
        choices=(TABLE, TF_CNN),
    )
    shared: BenchOptions = group(BenchOptions)


def training_plan(options: TrainOptions, faults: Faults) -> TrainingPlan:
    """Return what was asked for; all that is wrong with it is added to ``faults``."""
    facts = MODELS.get(options.plan.get("model", ""))
    values: dict[str, Any] = {"model": "", "batch": 1}
    if facts is not None:
        own = {"batch": facts.batch, "image_size": facts.image_size}
        own |= {"num_classes": facts.classes, "seq_len": facts.seq_len}
        values |= {name: size for name, size in own.items() if size is not None}
    plan = TrainingPlan(**(values | dict(options.plan)))
    faults.found += [fault for fault in faults_of(plan) if fault.where != "--model"]  # its word was wrong
    if options.format == TF_CNN:
        if facts is not None and facts.unit != "images":
            faults.add("--format", f"tf_cnn counts images, {plan.model} trains on {facts.unit}")
        if options.shared.json.json:
            faults.add("--format and --json", "both say what is printed", "leave one of them out")
    return plan


def lab_threads(job: Job, cores: int, environ: Mapping[str, str]) -> int | None:
    """Return OMP_NUM_THREADS of each rank where all hosts share ``cores``: an equal part of them.

    ``None`` where the user's own reaches the ranks, or where how many ranks there will be is not known yet.
    """
    if job.threads is not None or "OMP_NUM_THREADS" in {**environ, **dict(job.env)}:
        return job.threads
    ranks = number_of_ranks(job)
    return None if ranks is None else max(1, cores // ranks)


@Command.of(
    "train",
    TrainOptions,
    overridden=overridden,
    everyday=f"model batch arms steps repeats precision optimizer data {SHARED_EVERYDAY}",
)
def command(options: TrainOptions) -> int:
    """Train a built-in model in several variants, and show the speed of each and where the step time goes.

    All variants alternate in the same processes. At the end, the weights of ranks that trained together are
    compared: they must be equal. The run directory also contains a profile for `ringleader predict
    runs/NAME/profile.toml`.
    """
    line, faults = ProgressLine(prefix=""), Faults()
    plan = training_plan(options, faults)
    job = bench_options.requested_job(options.shared, line, faults)
    if options.shared.hosts.wants_lab:
        job = replace(job, threads=lab_threads(job, usable_cpus(), os.environ))
    name = bench_options.run_name(options.shared, f"train-{plan.model}", faults)
    if not job.hosts and plan.data != SYNTHETIC and plan.model in MODELS and MODELS[plan.model].data:
        try:
            find_data(plan.data, MODELS[plan.model].data)
        except DataError as error:
            faults.add("--data", str(error))
    refuse(faults.found)
    if options.shared.dry_run:
        line.clear()
        _print_plan(plan, job)
        return 0
    with interrupts.held():
        from ringleader.bench.training import training_job
    context = bench_options.starting_context(options.shared, job, _words(plan))
    answers = training_job.TrainingAnswers(name=name, context=context, plan=plan)
    _, code = bench_options.measured_into_directory(
        options.shared,
        name,
        line,
        lambda keep: training_job.measure(
            answers,
            job,
            environ=os.environ,
            progress=line.show,
            keep=keep,
        ),
        lambda run, directory, result: _show(options, run, answers, directory, result),
    )
    return code


def _print_plan(plan: TrainingPlan, job: Job) -> None:
    """Print every turn in its order, and what would be started."""
    from ringleader.bench.training.training_job import job_of

    arms = plan.arms or ARMS
    print(f"arms\t{', '.join(arms)}{'' if plan.arms else ' (those that can run on the ranks)'}")
    print(f"warm-up\t{plan.warmup} steps of each")
    for repetition in range(1, plan.repeats + 1):
        print(f"{repetition}\t{', '.join(in_round(arms, repetition - 1))}, {plan.steps} steps of each")
    sys.stdout.flush()
    print(dry_run_text(job_of(plan, job), environ=os.environ), end="")


def _words(plan: TrainingPlan) -> tuple[str, ...]:
    """Return the command with what its numbers depend on."""
    values = {name.replace("_", "-"): value for name, value in asdict(plan).items()}
    left_out = ("arms", "seed", "wait-seconds")
    words = [(f"--{name}", str(value)) for name, value in values.items() if value and name not in left_out]
    arms = (("--arms", ",".join(arm.replace(" ", "-") for arm in plan.arms)),) if plan.arms else ()
    return ("bench", "train", *(word for pair in (*words, *arms) for word in pair))


def _show(
    options: TrainOptions, run: TrainingRun, answers: TrainingAnswers, directory: Path, result: Result
) -> None:
    """Print what was measured, and write the profile beside it."""
    text = as_text(run)
    first = next((arm.name for arm in run.arms if arm.rates), None)
    if options.format == TF_CNN and first is not None:
        steps, losses = answers.rank_zero(first)
        text = "\n".join(tf_cnn_lines(steps, losses, batch=answers.plan.batch, ranks=run.ranks)) + "\n"
    bench_options.show(run, directory, result, lambda: text)
    _write_profile(run, directory)
    if run.failure and (options.shared.json.json or options.format == TF_CNN):
        print(f"ringleader: {run.failure}", file=sys.stderr, flush=True)


def _write_profile(run: TrainingRun, directory: Path) -> None:
    text = profile_text(run)
    if text is not None:
        write_text(directory / PROFILE, text)
        print(
            f"predict: ringleader predict {shlex.quote(str(directory / PROFILE))}",
            file=sys.stderr,
            flush=True,
        )
