"""What a scaling run means, in words. Pure. Nothing is claimed that the repetitions do not show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ringleader.confidence_interval import Interval
from ringleader.metrics import Spread
from ringleader.report.baseline import ONE, baseline_text
from ringleader.report.cautions import WIDE, cautions, unfinished
from ringleader.report.number_format import percent, plural, seconds, thousands, times
from ringleader.scaling import Context, Losses, Run, Scaling, compare_sizes, scalings

OVERSUBSCRIBED = 1.25
"""Up to this many times cores / ranks of the ideal, too few cores are the explanation."""


SLOWER = "slower computing in step with them"
GAINS = {SLOWER: "computing faster in step than uncoupled"}
"""What a cause of loss is called where it is a gain."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A run in words."""

    headline: str
    """One sentence on the largest size."""
    limits: tuple[str, ...]
    """What keeps it from being linear, a sentence or two each."""
    cautions: tuple[str, ...]
    """Why a number might deserve less trust."""


def largest(results: Sequence[Scaling]) -> Scaling:
    """Return the size with the most ranks; of equals the one on more hosts."""
    return max(results, key=lambda result: (result.ranks, result.hosts))


def explain(run: Run) -> Explanation:
    """Put a run into words."""
    results = scalings(run)
    if not results:
        return Explanation(
            headline="Nothing was measured yet.", limits=(), cautions=tuple(unfinished(run, results))
        )
    top = largest(results)
    return Explanation(
        headline=headline(run, top),
        limits=tuple(_limits(run, results, top)),
        cautions=tuple(unfinished(run, results)) + tuple(cautions(run, results)),
    )


def _machine(context: Context, hosts: int) -> str:
    return "this machine" if context.one_machine or hosts == 1 else "the machines"


def headline(run: Run, top: Scaling) -> str:
    """Return one sentence on a size."""
    who, base = plural(top.ranks, "rank"), baseline_text(run)
    rate = f"{thousands(top.rate.median)} {run.unit}/s"
    if top.name == run.baseline:
        does = "does" if base.startswith("one ") else "do"
        return f"{base[0].upper()}{base[1:]} {does} {rate}; larger sizes were not measured."
    if top.speedup is None or top.efficiency is None:
        missing = f"{base} {'was' if base.startswith('one ') else 'were'} not measured"
        return (
            f"{who} {'does' if top.ranks == 1 else 'do'} {rate}; {missing}, so there is no speed-up to tell."
        )
    faster, between = times(top.speedup.median), top.speedup.interval
    one = "one" if run.baseline == ONE else base
    text = (
        f"{who} do the same work {faster} as fast as {one}"
        if run.strong
        else f"{who} do {faster} the work of {one}"
    )
    against, losses = top.against_uncoupled, top.losses
    is_clear = against is not None and against.clear_of(1.0)
    if between and not is_clear and between.high - between.low > 2 * WIDE * top.speedup.median:
        low, high, count = times(top.speedup.low), times(top.speedup.high), top.speedup.count
        text += f" ({low} to {high} in {plural(count, 'repetition')})"
    else:
        text += f": {percent(top.efficiency.median)} efficiency"
    text += " (strong scaling)" if run.strong else ""
    if against is None or losses is None:
        return f"{text}. Uncoupled ranks were not measured, so what is lost cannot be split."
    if losses.total.count < top.efficiency.count:
        return f"{text}. The run is not complete, so what is lost is not split."
    if against.count < 2:
        return f"{text}; against uncoupled ranks {percent(against.median)}, from a single repetition."
    if not against.clear_of(1.0):
        return f"{text}; {_most(run, top, _between(against))}."
    if against.median > 1.0:
        return f"{text}; against uncoupled ranks {percent(against.median)}: communication costs nothing here."
    split = _split(losses, _shared(run, top), base)
    return f"{text}; against uncoupled ranks {percent(against.median)}: {split}."


def _most(run: Run, top: Scaling, against: Interval) -> str:
    """Say what communication costs at most: of all repetitions' steps, where the interval tells less."""
    samples = [sample for point in run.points if point.name == top.name for sample in point.samples]
    inside = [(s.exchange_seconds, s.waiting_seconds, s.step_seconds) for s in samples]
    parts = [(e / step, (w or 0.0) / step) for e, w, step in inside if step and e is not None]
    if against.high - against.low <= 2 * WIDE or len(parts) < len(samples):
        return f"communication costs at most {percent(1 - against.low)} (95 % interval)"
    exchange, waiting = (percent(max(column)) for column in zip(*parts, strict=True))
    return (
        f"exchanging gradients took at most {exchange} of a step, waiting for other ranks at most {waiting}"
    )


def _shared(run: Run, top: Scaling) -> str:
    """Name what uncoupled ranks lose by."""
    machine = f"sharing {_machine(run.context, top.hosts)}"
    return f"{machine} and smaller batches" if run.strong else machine


def _split(losses: Losses, sharing: str, base: str) -> str:
    """Say where the points lost go: a cause is named only where its part is clear of the spread."""
    if not losses.total.clear_of(0.0):
        return f"what is lost against {base} lies within the spread ({_extent(losses.total)} points)"
    total = round(100 * losses.total.median)
    causes = _causes(losses, sharing)
    certain = [(round(100 * part.median), cause) for cause, part in causes if part.clear_of(0.0)]
    certain = sorted(((points, cause) for points, cause in certain if points), reverse=True)
    doubtful = any(not part.clear_of(0.0) for _, part in causes)
    rest = total - sum(points for points, _ in certain)
    if not certain or rest < -len(certain):  # parts that are more than the whole explain nothing
        return f"where the {total} points lost go lies within the spread"
    if rest < 0 or not doubtful:  # rounded medians need not add up to the last point
        certain[0], rest = (certain[0][0] + rest, certain[0][1]), 0
    gains = [
        f"{-points} are won back by {GAINS.get(cause, cause)}" for points, cause in certain if points < 0
    ]
    lost = [(points, cause) for points, cause in certain if points > 0]
    parts = [f"{points} {'goes' if points == 1 else 'go'} to {cause}" for points, cause in lost[:1]]
    parts += [f"{points} to {cause}" for points, cause in lost[1:]]
    said = f"of the {total} points lost, {_listed(parts + gains)}"
    return said + ("; the rest lies within the spread" if rest > 0 else "")


def _causes(losses: Losses, sharing: str) -> list[tuple[str, Spread]]:
    """Return what a size can lose by, and how much of the ideal that is."""
    found = [(sharing, losses.sharing)]
    if losses.exchange is None or losses.waiting is None or losses.slower_compute is None:
        return [*found, ("coupling the ranks", losses.coupling)]
    return [
        *found,
        ("the exchange", losses.exchange),
        ("waiting for other ranks", losses.waiting),
        (SLOWER, losses.slower_compute),
    ]


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _between(spread: Spread) -> Interval:
    """Return the interval of the mean, or the extent where there is none."""
    return spread.interval or Interval(low=spread.low, high=spread.high)


def _extent(part: Spread) -> str:
    """0.21 to 0.24 of the ideal → ``21 to 24``."""
    between = _between(part)
    return f"{100 * between.low:.0f} to {100 * between.high:.0f}"


def _undecided(against: Spread) -> str:
    """Say that the repetitions decide nothing, and why."""
    between = _between(against)
    extent = f"(95 % interval {percent(between.low)} to {percent(between.high)})"
    if between.high - between.low <= 2 * WIDE:
        return f"no difference shows beyond the spread {extent}"
    return f"the repetitions leave it open {extent}"


def _limits(run: Run, results: Sequence[Scaling], top: Scaling) -> list[str]:
    if top.name == run.baseline or top.efficiency is None:
        return []
    found = []
    if top.losses is not None:
        sharing, coupling = _sharing(run, top, top.losses), _coupling(top, top.losses)
        larger = top.losses.sharing.median >= top.losses.coupling.median
        found += [sharing, coupling] if larger else [coupling, sharing]
        found += _in_step(top)
    found += _steepest(run, results)
    found += _no_gain(run, results, top)
    found += _uneven(run, top)
    if top.efficiency.low > 1.0 and top.efficiency.clear_of(1.0):
        found.append(_above_ideal(run))
    return [text for text in found if text]


def _above_ideal(run: Run) -> str:
    if run.strong:
        return (
            "Efficiency is above 100 %: each rank's smaller batch fits the caches better than the "
            "baseline's, or the baseline was slower than it could be."
        )
    who = "the single rank" if run.baseline == ONE else baseline_text(run)
    return (
        f"Efficiency is above 100 %: {who} was slower than it could be, most often because its "
        "working set fits the caches worse or because the input pipeline is shared by several ranks."
    )


def _sharing(run: Run, top: Scaling, losses: Losses) -> str:
    alone, who = top.uncoupled_efficiency, plural(top.ranks, "rank")
    assert alone is not None
    machine = _machine(run.context, top.hosts)
    if alone.count > 1 and not alone.clear_of(1.0):
        return (
            f"Sharing: no loss shows beyond the spread. {who} that exchange nothing reach "
            f"{percent(_between(alone).low)} to {percent(_between(alone).high)} of "
            + ("as many times one rank." if run.baseline == ONE and not run.strong else "the ideal.")
        )
    if losses.sharing.median <= 0:
        part = percent(alone.median)
        return f"Sharing: nothing is lost. {who} that exchange nothing reach {part} of the ideal."
    text = (
        f"Sharing: {who} that exchange nothing reach {percent(alone.median)} of the ideal"
        f"{', measured once' if alone.count == 1 else ''}. "
    )
    if run.strong:
        return (
            f"{text}{_points(losses.sharing)} to what ranks on {machine} share and to computing each rank's "
            "smaller batch; the two are not told apart."
        )
    text += (
        f"{_points(losses.sharing)} to what ranks on {machine} share: cores, caches, memory, clock rates. "
    )
    cores = _cores(run.context, top.hosts)
    if cores is not None and cores < top.ranks and alone.median < OVERSUBSCRIBED * cores / top.ranks:
        bound = percent(cores / top.ranks)
        return text + f"They have {plural(cores, 'core')} between them, which alone leaves about {bound}."
    return text + "More machines would help; a faster network would not."


def _cores(context: Context, hosts: int) -> int | None:
    """Return the cores the first ``hosts`` hosts have, as far as known; one machine counts once."""
    known = [host.cores for host in context.hosts[:hosts]]
    if not known or any(count is None for count in known) or (len(known) < hosts and not context.one_machine):
        return None
    counts = [count for count in known if count is not None]
    return max(counts) if context.one_machine else sum(counts)


def _points(part: Spread) -> str:
    """0.23 of the ideal, measured 0.22 to 0.24 → ``23 points (22 to 24) go``."""
    count = round(100 * part.median)
    shown = part.count > 1 and _extent(part) != f"{count} to {count}"
    extent = f" ({_extent(part)})" if shown else ""
    return f"{count} point{extent} goes" if count == 1 else f"{count} points{extent} go"


def _coupling(top: Scaling, losses: Losses) -> str:
    against = top.against_uncoupled
    assert against is not None
    if against.count < 2:
        text = f"Coupling: {percent(against.median)} of uncoupled ranks, measured once: no claim."
    elif not against.clear_of(1.0):
        text = (
            f"Coupling: against uncoupled ranks {_undecided(against)}. More or longer repetitions, or a "
            "quieter machine, would tell."
        )
    elif against.median > 1.0:
        text = (
            f"Coupling: coupled ranks do {percent(against.median)} of what uncoupled ones do. "
            "Ranks in step can get in each other's way less; the exchange costs less than that gains."
        )
    else:
        text = f"Coupling: {_points(losses.coupling)} to coupling the ranks. "
        text += f"They do {percent(against.median)} of what as many uncoupled ranks do."
    return text + _inside_step(top, losses)


def _in_step(top: Scaling) -> list[str]:
    """Tell what meeting once a step costs by itself, and what the exchange adds to that."""
    meeting, rest = top.in_step_against_uncoupled, top.against_in_step
    if meeting is None or rest is None:
        return []
    who = plural(top.ranks, "rank")
    if meeting.count < 2:
        return [
            f"In step: {who} that only meet do {percent(meeting.median)} of uncoupled ones, coupled ranks "
            f"{percent(rest.median)} of those in step, measured once: no claim."
        ]
    text = f"In step: {who} that only meet, and exchange nothing, "
    if meeting.clear_of(1.0):
        text += f"do {percent(meeting.median)} of what uncoupled ones do"
        text += ": no transport wins that back. " if meeting.median < 1.0 else ". "
    else:
        text += f"against uncoupled ones: {_undecided(meeting)}. "
    if not rest.clear_of(1.0):
        return [text + f"Between them and coupled ranks {_undecided(rest)}."]
    return [text + f"Coupled ranks do {percent(rest.median)} of that: what the exchange itself costs."]


def _inside_step(top: Scaling, losses: Losses) -> str:
    step, slower = top.step, losses.slower_compute
    if step is None or step.exchange is None or step.waiting is None or not step.total > 0:
        return ""
    text = (
        f" In a step of {seconds(step.total)}, {seconds(step.exchange)} "
        f"({percent(step.exchange / step.total)}) are exchange and {seconds(step.waiting)} "
        f"({percent(step.waiting / step.total)}) waiting for other ranks."
    )
    if slower is not None and slower.median > 0 and slower.clear_of(0.0):
        points = f"{round(100 * slower.median)} points ({_extent(slower)})"
        text += f" The other {points} are in neither: in step, ranks compute at the same moment and compete"
        text += " for what they share; uncoupled ones drift apart."
    elif step.waiting > step.exchange and step.waiting > 0.02 * step.total:
        text += " Most of the two is waiting: ranks that differ in speed cost more here than the wire."
    return text


def _steepest(run: Run, results: Sequence[Scaling]) -> list[str]:
    """Name the neighbouring sizes between which efficiency falls most, where it falls for certain."""
    by_ranks = sorted((r for r in results if r.efficiency is not None), key=lambda r: (r.ranks, r.hosts))
    falls = []
    for before, after in pairwise(by_ranks):
        assert before.efficiency is not None and after.efficiency is not None
        found = compare_sizes(
            run, after.name, before.name, by=lambda sample, point: sample.rate / point.ranks
        )
        if found is not None and found.differs and found.ratio < 1:
            falls.append((before.efficiency.median - after.efficiency.median, before, after))
    if len(by_ranks) < 3 or not falls:
        return []
    _, before, after = max(falls, key=lambda fall: fall[0])
    assert before.efficiency is not None and after.efficiency is not None
    return [
        f"Where: the largest fall is from {before.name} to {after.name}, "
        f"{percent(before.efficiency.median)} to {percent(after.efficiency.median)}."
    ]


def _no_gain(run: Run, results: Sequence[Scaling], top: Scaling) -> list[str]:
    """Say where the largest size is no faster than the one before it."""
    smaller = [result for result in results if result.ranks < top.ranks]
    if not smaller:
        return []
    before = largest(smaller)
    found = compare_sizes(run, top.name, before.name)
    if found is None or found.interval is None or (found.differs and found.ratio > 1):
        return []
    between = f"{percent(found.interval.low)} to {percent(found.interval.high)} of its rate"
    if found.differs:
        return [f"Rate: {top.name} is slower than {before.name}: {between}."]
    return [f"Rate: from {before.name} to {top.name} no gain shows ({between}, 95 % interval)."]


def _uneven(run: Run, top: Scaling) -> list[str]:
    """Tell a rank that is slower on its own, seen where ranks are uncoupled and so keep their own pace."""
    point = next(p for p in run.points if (p.hosts, p.slots) == (top.hosts, top.slots))
    parts = [s.slowest_rate * top.ranks / s.rate for s in point.uncoupled if s.slowest_rate is not None]
    if not parts or max(parts) > 0.9:
        return []
    return [
        f"Balance: left alone, the slowest rank does {percent(max(parts))} of the mean in every repetition. "
        "Coupled ranks march at its pace."
    ]
