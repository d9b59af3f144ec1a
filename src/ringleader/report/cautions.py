"""Why the numbers of a scaling run might deserve less trust, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ringleader.report.number_format import percent, seconds
from ringleader.scaling import Run, Scaling

WIDE = 0.1
"""A spread of more than this part of the median is worth a caution."""


def unfinished(run: Run, results: Sequence[Scaling]) -> list[str]:
    """Return why not everything that was asked for is there."""
    if run.failure:
        return [f"The run ended early ({run.failure}); what was measured before is shown."]
    fewest = min((len(point.samples) for point in run.points), default=0)
    if results and fewest < run.repeats:
        return ["The run is not complete; what was measured so far is shown."]
    return []


def cautions(run: Run, results: Sequence[Scaling]) -> list[str]:
    """Return why a number might deserve less trust."""
    found = []
    if all(result.rate.count == 1 for result in results):
        found.append(
            "One repetition: how far the numbers vary is unknown, so small differences mean nothing."
        )
    elif max(result.rate.count for result in results) == 2:
        found.append("Two repetitions: 95 % intervals are very wide. Three or more show smaller differences.")
    wide = [
        f"{result.name} ({percent((result.rate.high - result.rate.low) / result.rate.median)})"
        for result in results
        if result.rate.high - result.rate.low > WIDE * result.rate.median
    ]
    if wide:
        found.append(
            f"The repetitions vary much at {', '.join(wide)}: something else used the "
            "machine, or the runs are short. Small differences mean nothing."
        )
    samples = [(point, one) for point in run.points for _kind, ones in point.kinds for one in ones]
    if any(sample.heard < point.ranks for point, sample in samples):
        found.append("Not every rank told its rate: the rate of those that did was taken for all.")
    apart = sorted({point.name for point, sample in samples if not sample.together})
    if apart:
        found.append(
            f"At {', '.join(apart)} the ranks of a run hardly trained at the same time: they competed less "
            "than they would have, which flatters them. Let the script train longer."
        )
    found += dict.fromkeys(f"At {point.name} {text}" for point, one in samples for text in one.differences)
    found += _sittings(run)
    short = min((sample.seconds for _, sample in samples if sample.seconds), default=None)
    if short is not None and short < 1.0:
        found.append(
            f"The shortest run was measured over {seconds(short)} only; let the script train longer."
        )
    return found


def _sittings(run: Run) -> list[str]:
    """Tell where repetitions that are compared were not made close to each other."""
    if not run.resumed or run.base is None:
        return []
    base = [sample.sitting for sample in run.base.samples]
    apart = [
        point.name
        for point in run.points
        if any(sample.sitting != sitting for sample, sitting in zip(point.samples, base, strict=False))
    ]
    if not apart:
        return []
    return [
        f"{', '.join(apart)} and the baseline were measured in different sittings: what changed on the "
        "machine in between is in their ratio."
    ]
