"""What a scaling run means, in words. Pure. Nothing is claimed that the repetitions do not show.

Most of it is rows of (condition, sentence). `scaling` has the numbers, `scaling_plots` the drawings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ringleader.confidence_interval import Interval
from ringleader.metrics import Spread
from ringleader.number_format import percent, plural, seconds, thousands, times
from ringleader.report.summary import ended_early
from ringleader.scaling import Context, Losses, Run, Scaling, compare_sizes, scalings

ONE = "1x1"
OVERSUBSCRIBED = 1.25
"""Up to this many times cores / ranks of the ideal, too few cores are the explanation."""
WIDE = 0.1
"""A spread of more than this part of the median is worth a caution."""
SLOWER = "slower computing in step with them"
GAINS = {SLOWER: "computing faster in step than uncoupled"}
"""What a cause of loss is called where it is a gain."""


def _first(*rows: tuple[object, str]) -> str:
    """Return the first sentence whose condition holds."""
    return next(sentence for holds, sentence in rows if holds)


def baseline_text(run: Run) -> str:
    """``one rank``, ``one host of 8 ranks`` or ``2 hosts of 4 ranks``."""
    if run.baseline == ONE:
        return "one rank"
    hosts, _, slots = run.baseline.partition("x")
    of = f"of {plural(int(slots), 'rank')}"
    return f"one host {of}" if hosts == "1" else f"{hosts} hosts {of}{' each' if slots != '1' else ''}"


def ideal_text(run: Run) -> str:
    """Return how efficiency is taken, as a formula in words of this run."""
    if run.baseline == ONE:
        return "X(N) / (N · X(1))"
    ranks = math.prod(map(int, run.baseline.split("x")))
    return f"X(N) / (N/{ranks} · X({ranks}))"


def kind_text(run: Run) -> str:
    """Return which scaling it is."""
    return _first(
        (not run.strong, "weak: each rank's batch stays the same"),
        (run.global_batch is None, "strong: the global batch stays the same, shared out by the script"),
        (True, f"strong: the global batch of {run.global_batch or 0:,} stays the same"),
    )


def largest(results: Sequence[Scaling]) -> Scaling:
    """Return the size with the most ranks; of equals the one on more hosts."""
    return max(results, key=lambda result: (result.ranks, result.hosts))


def _middle(spread: Spread | None) -> str:
    return "" if spread is None else percent(spread.median)


def _between(spread: Spread) -> Interval:
    """Return the interval of the mean, or the extent where there is none."""
    return spread.interval or Interval(low=spread.low, high=spread.high)


def _extent(part: Spread) -> str:
    """0.21 to 0.24 of the ideal → ``21 to 24``."""
    between = _between(part)
    return f"{100 * between.low:.0f} to {100 * between.high:.0f}"


def _percents(between: Interval) -> str:
    return f"{percent(between.low)} to {percent(between.high)}"


def _points(part: Spread) -> str:
    """0.23 of the ideal, measured 0.22 to 0.24 → ``23 points (22 to 24) go``."""
    count = round(100 * part.median)
    is_shown = part.count > 1 and _extent(part) != f"{count} to {count}"
    extent = f" ({_extent(part)})" if is_shown else ""
    return f"{count} point{extent} goes" if count == 1 else f"{count} points{extent} go"


def _machine(context: Context, hosts: int) -> str:
    return "this machine" if context.one_machine or hosts == 1 else "the machines"


def _undecided(against: Spread) -> str:
    """Say that the repetitions decide nothing, and why."""
    between = _between(against)
    is_narrow = between.high - between.low <= 2 * WIDE
    text = "no difference shows beyond the spread" if is_narrow else "the repetitions leave it open"
    return f"{text} (95% interval {_percents(between)})"


def headline(run: Run) -> str:
    """Return one sentence on the largest size."""
    results = scalings(run)
    return headline_of(run, largest(results)) if results else "Nothing was measured yet."


def headline_of(run: Run, top: Scaling) -> str:
    """Return one sentence on a size."""
    who, base = plural(top.ranks, "rank"), baseline_text(run)
    rate = f"{thousands(top.rate.median)} {run.unit}/s"
    is_single = base.startswith("one ")
    if top.name == run.baseline:
        does = "does" if is_single else "do"
        return f"{base[0].upper()}{base[1:]} {does} {rate}; larger sizes were not measured."
    if top.speedup is None or top.efficiency is None:
        missing = f"{base} {'was' if is_single else 'were'} not measured"
        does = "does" if top.ranks == 1 else "do"
        return f"{who} {does} {rate}; {missing}, so there is no speed-up to tell."
    faster, between = times(top.speedup.median), top.speedup.interval
    one = "one" if run.baseline == ONE else base
    text = f"do the same work {faster} as fast as {one}" if run.strong else f"do {faster} the work of {one}"
    against, losses = top.against_uncoupled, top.losses
    is_clear = against is not None and against.clear_of(1.0)
    if between and not is_clear and between.high - between.low > 2 * WIDE * top.speedup.median:
        low, high, count = times(top.speedup.low), times(top.speedup.high), top.speedup.count
        text = f"{who} {text} ({low} to {high} in {plural(count, 'repetition')})"
    else:
        text = f"{who} {text}: {percent(top.efficiency.median)} efficiency"
    text += " (strong scaling)" if run.strong else ""
    if against is None or losses is None:
        return f"{text}. Independent ranks were not measured, so what is lost cannot be split."
    if losses.total.count < top.efficiency.count:
        return f"{text}. The run is not complete, so what is lost is not split."
    if against.count < 2:  # one pair of runs may be off by any amount
        return f"{text}, from a single repetition."
    beside = f"against independent ranks {percent(against.median)}"
    if not is_clear:
        return f"{text}; {_most(run, top, _between(against))}."
    if against.median > 1.0:
        return f"{text}; {beside}: communication costs nothing here."
    return f"{text}; {beside}: {_split(run, top, losses)}."


def _most(run: Run, top: Scaling, against: Interval) -> str:
    """Say what communication costs at most: of all repetitions' steps, where the interval tells less."""
    samples = [sample for point in run.points if point.name == top.name for sample in point.samples]
    inside = [(s.exchange_seconds, s.waiting_seconds, s.step_seconds) for s in samples]
    parts = [(e / step, (w or 0.0) / step) for e, w, step in inside if step and e is not None]
    if against.high - against.low <= 2 * WIDE or len(parts) < len(samples):
        return f"communication costs at most {percent(1 - against.low)} (95% interval)"
    exchange, waiting = (percent(max(column)) for column in zip(*parts, strict=True))
    return (
        f"exchanging gradients took at most {exchange} of a step, waiting for other ranks at most {waiting}"
    )


def _split(run: Run, top: Scaling, losses: Losses) -> str:
    """Say where the points lost go: a cause is named only where its part is clear of the spread."""
    if not losses.total.clear_of(0.0):
        lies = f"lies within the spread ({_extent(losses.total)} points)"
        return f"what is lost against {baseline_text(run)} {lies}"
    total = round(100 * losses.total.median)
    sharing = f"sharing {_machine(run.context, top.hosts)}{' and smaller batches' if run.strong else ''}"
    parts = [
        ("the exchange", losses.exchange),
        ("waiting for other ranks", losses.waiting),
        (SLOWER, losses.slower_compute),
    ]
    inside = [(cause, part) for cause, part in parts if part is not None]
    if len(inside) < len(parts):
        inside = [("coupling the ranks", losses.coupling)]
    causes = [(sharing, losses.sharing), *inside]
    certain = [(round(100 * part.median), cause) for cause, part in causes if part.clear_of(0.0)]
    certain = sorted(((points, cause) for points, cause in certain if points), reverse=True)
    doubtful = any(not part.clear_of(0.0) for _, part in causes)
    rest = total - sum(points for points, _ in certain)
    if not certain or rest < -len(certain):  # parts that are more than the whole explain nothing
        return f"where the {total} points lost go lies within the spread"
    if rest < 0 or not doubtful:  # rounded medians need not add up to the last point
        certain[0], rest = (certain[0][0] + rest, certain[0][1]), 0
    verbs = ["goes " if certain[0][0] == 1 else "go ", *[""] * len(certain)]
    both = zip(verbs, certain, strict=False)
    lost = [f"{points} {verb}to {cause}" for verb, (points, cause) in both if points > 0]
    gains = [
        f"{-points} are won back by {GAINS.get(cause, cause)}" for points, cause in certain if points < 0
    ]
    *before, last = lost + gains
    listed = f"{', '.join(before)} and {last}" if before else last
    return f"of the {total} points lost, {listed}" + ("; the rest lies within the spread" if rest > 0 else "")


def limits(run: Run) -> list[str]:
    """Return what keeps the largest size from being linear, a sentence or two each."""
    results = scalings(run)
    top = largest(results) if results else None
    if top is None or top.name == run.baseline or top.efficiency is None:
        return []
    found = []
    if top.losses is not None:
        found = [_sharing(run, top, top.losses), _coupling(top, top.losses)]
        if top.losses.sharing.median < top.losses.coupling.median:
            found.reverse()
        found += _in_step(top)
    found += [*_steepest(run, results), *_no_gain(run, results, top), *_uneven(run, top)]
    if top.efficiency.low > 1.0 and top.efficiency.clear_of(1.0):
        who = "the single rank" if run.baseline == ONE else baseline_text(run)
        strong = (
            "each rank's smaller batch fits the caches better than the baseline's, or the baseline was "
            "slower than it could be."
        )
        weak = (
            f"{who} was slower than it could be, most often because its working set fits the caches worse or "
            "because the input pipeline is shared by several ranks."
        )
        found.append(f"Efficiency is above 100%: {strong if run.strong else weak}")
    return found


def _sharing(run: Run, top: Scaling, losses: Losses) -> str:
    alone, who = top.uncoupled_efficiency, plural(top.ranks, "rank")
    assert alone is not None
    machine, cores = _machine(run.context, top.hosts), _cores(run.context, top.hosts)
    reach = f"{who} that exchange nothing reach"
    lost = f"Sharing: {reach} {percent(alone.median)} of the ideal"
    lost += f"{', measured once' if alone.count == 1 else ''}. {_points(losses.sharing)} to"
    shared = f"{lost} what ranks on {machine} share: cores, caches, memory, clock rates."
    few = cores is not None and cores < top.ranks and alone.median < OVERSUBSCRIBED * cores / top.ranks
    core, bound = plural(cores or 0, "core"), percent((cores or 0) / top.ranks)
    ideal = "as many times one rank" if run.baseline == ONE and not run.strong else "the ideal"
    return _first(
        (
            alone.count > 1 and not alone.clear_of(1.0),
            f"Sharing: no loss shows beyond the spread. {reach} {_percents(_between(alone))} of {ideal}.",
        ),
        (
            losses.sharing.median <= 0,
            f"Sharing: nothing is lost. {reach} {percent(alone.median)} of the ideal.",
        ),
        (
            run.strong,
            f"{lost} what ranks on {machine} share and to computing each rank's smaller batch; the two are "
            "not told apart.",
        ),
        (few, f"{shared} They have {core} between them, which alone leaves about {bound}."),
        (True, f"{shared} More machines would help; a faster network would not."),
    )


def _cores(context: Context, hosts: int) -> int | None:
    """Return the cores the first ``hosts`` hosts have, as far as known; one machine counts once."""
    known = [host.cores for host in context.hosts[:hosts]]
    counts = [count for count in known if count is not None]
    if not counts or len(counts) < len(known) or (len(known) < hosts and not context.one_machine):
        return None
    return max(counts) if context.one_machine else sum(counts)


def _coupling(top: Scaling, losses: Losses) -> str:
    against = top.against_uncoupled
    assert against is not None
    part = percent(against.median)
    text = _first(
        (against.count < 2, f"{part} of independent ranks, measured once: no claim."),
        (
            not against.clear_of(1.0),
            f"against independent ranks {_undecided(against)}. More or longer repetitions, or a quieter "
            "machine, would tell.",
        ),
        (
            against.median > 1.0,
            f"coupled ranks do {part} of what independent ones do. Barrier-only ranks can get in each "
            "other's way less; the exchange costs less than that gains.",
        ),
        (
            True,
            f"{_points(losses.coupling)} to coupling the ranks. They do {part} of what as many independent "
            "ranks do.",
        ),
    )
    return f"Coupling: {text}{_inside_step(top, losses)}"


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
        return (
            f"{text} The other {points} are in neither: in step, ranks compute at the same moment and compete"
            " for what they share; independent ones drift apart."
        )
    if step.waiting > step.exchange and step.waiting > 0.02 * step.total:
        text += " Most of the two is waiting: ranks that differ in speed cost more here than the wire."
    return text


def _in_step(top: Scaling) -> Iterator[str]:
    """Tell what meeting once a step costs by itself, and what the exchange adds to that."""
    meeting, rest = top.in_step_against_uncoupled, top.against_in_step
    if meeting is None or rest is None:
        return
    text = f"In step: {plural(top.ranks, 'rank')} that only synchronize"
    if meeting.count < 2:
        yield (
            f"{text} do {percent(meeting.median)} of independent ones, coupled ranks {percent(rest.median)} "
            "of those in step, measured once: no claim."
        )
        return
    text += ", and exchange nothing, "
    if meeting.clear_of(1.0):
        wins = ": no transport wins that back" if meeting.median < 1.0 else ""
        text += f"do {percent(meeting.median)} of what independent ones do{wins}."
    else:
        text += f"against independent ones: {_undecided(meeting)}."
    if rest.clear_of(1.0):
        yield f"{text} Coupled ranks do {percent(rest.median)} of that: what the exchange itself costs."
    else:
        yield f"{text} Between them and coupled ranks {_undecided(rest)}."


def _steepest(run: Run, results: Sequence[Scaling]) -> Iterator[str]:
    """Name the neighboring sizes between which efficiency falls most, where it falls for certain."""
    by_ranks = sorted((r for r in results if r.efficiency is not None), key=lambda r: (r.ranks, r.hosts))
    falls = []
    for before, after in pairwise(by_ranks):
        assert before.efficiency is not None and after.efficiency is not None
        found = compare_sizes(run, after.name, before.name, by=lambda one, point: one.rate / point.ranks)
        if found is not None and found.differs and found.ratio < 1:
            falls.append((before.efficiency.median - after.efficiency.median, before, after))
    if len(by_ranks) > 2 and falls:
        _, before, after = max(falls, key=lambda fall: fall[0])
        fall = f"{_middle(before.efficiency)} to {_middle(after.efficiency)}"
        yield f"Where: the largest fall is from {before.name} to {after.name}, {fall}."


def _no_gain(run: Run, results: Sequence[Scaling], top: Scaling) -> Iterator[str]:
    """Say where the largest size is no faster than the one before it."""
    smaller = [result for result in results if result.ranks < top.ranks]
    before = largest(smaller).name if smaller else ""
    found = compare_sizes(run, top.name, before) if smaller else None
    if found is None or found.interval is None or (found.differs and found.ratio > 1):
        return
    between = f"{_percents(found.interval)} of its rate"
    if found.differs:
        yield f"Rate: {top.name} is slower than {before}: {between}."
    else:
        yield f"Rate: from {before} to {top.name} no gain shows ({between}, 95% interval)."


def _uneven(run: Run, top: Scaling) -> Iterator[str]:
    """Tell a rank that is slower on its own, seen where ranks are uncoupled and so keep their own pace."""
    point = next(point for point in run.points if point.name == top.name)
    parts = [s.slowest_rate * top.ranks / s.rate for s in point.uncoupled if s.slowest_rate is not None]
    if parts and max(parts) <= 0.9:
        yield (
            f"Balance: left alone, the slowest rank does {percent(max(parts))} of the mean in every "
            "repetition. Coupled ranks march at its pace."
        )


def cautions(run: Run) -> list[str]:
    """Return why not everything is there that was asked for, and why a number might deserve less trust."""
    results = scalings(run)
    fewest = min((len(point.samples) for point in run.points), default=0)
    is_partial = bool(results) and not run.failure and fewest < run.repeats
    found = ended_early(run)
    found += ["The run is not complete; what was measured so far is shown."] if is_partial else []
    if not results:
        return found
    most = max(result.rate.count for result in results)
    spreads = [(one.name, (one.rate.high - one.rate.low) / one.rate.median) for one in results]
    wide = ", ".join(f"{name} ({percent(part)})" for name, part in spreads if part > WIDE)
    samples = [(point, one) for point in run.points for _kind, ones in point.kinds for one in ones]
    apart = ", ".join(sorted({point.name for point, sample in samples if not sample.together}))
    differing = dict.fromkeys(f"At {point.name} {text}" for point, one in samples for text in one.differences)
    short = min((sample.seconds for _, sample in samples if sample.seconds), default=math.inf)
    # Repetitions that are compared were not made close to each other.
    base = [sample.sitting for sample in run.base.samples] if run.resumed and run.base else []
    sittings = ", ".join(
        point.name
        for point in run.points
        if any(sample.sitting != sitting for sample, sitting in zip(point.samples, base, strict=False))
    )
    rows = (
        (
            most == 1,
            "One repetition: how far the numbers vary is unknown, so small differences mean nothing.",
        ),
        (most == 2, "Two repetitions: 95% intervals are very wide. Three or more show smaller differences."),
        (
            wide,
            f"The repetitions vary much at {wide}: something else used the machine, or the runs are short. "
            "Small differences mean nothing.",
        ),
        (
            any(sample.heard < point.ranks for point, sample in samples),
            "Not every rank reported its rate: the rate of those that did was taken for all.",
        ),
        (
            run.unit == "steps",
            "Rates are steps of the script's optimizers: it does not say how many samples are in one.",
        ),
        (
            run.unit == "runs",
            "The script reports no rate and its steps cannot be counted: rates are whole runs by the wall "
            "clock, with their start, which makes sizes look more alike than training is.",
        ),
        (
            apart,
            f"At {apart} the ranks of a run hardly trained at the same time: they competed less than they "
            "would have, which flatters them. Let the script train longer.",
        ),
        *((True, text) for text in differing),
        (
            sittings,
            f"{sittings} and the baseline were measured in different sessions: what changed on the machine "
            "in between is in their ratio.",
        ),
        (
            short < 1.0,
            f"The shortest run was measured over {seconds(short)} only; let the script train longer.",
        ),
    )
    return found + [sentence for holds, sentence in rows if holds]
