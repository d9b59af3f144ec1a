"""Is a run as fast as another one, but for a part that is allowed? Pure.

A number fails where its loss is sure: the whole interval of the ratio lies below the threshold. An interval
that the threshold divides, and a number that was measured once, are told and do not fail. A run that failed
does, and so does one that lacks numbers of its baseline: what was not measured may be as slow as it likes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ringleader.errors import Fault, RequestError
from ringleader.report import compare as side_by_side
from ringleader.report.compare import Comparison, Match
from ringleader.report.number_format import plural

LONGEST, FEW = 10, 4
"""Numbers that are told by name, a line each and within one sentence; JSON has all of them."""


@dataclass(frozen=True, kw_only=True)
class Guard:
    """What was found."""

    threshold: float
    """Least ratio of the run to its baseline."""
    failed: tuple[str, ...]
    """Names of the numbers that are below for sure."""
    doubtful: tuple[str, ...]
    """Names of those that may be below, or above."""
    missing: tuple[str, ...]
    """Names of the baseline's numbers that the run lacks."""
    is_missing_allowed: bool
    run_failure: str
    """Why the run ended early; empty: it did not."""
    failures: tuple[str, ...]
    """In sentences."""
    warnings: tuple[str, ...]
    headline: str

    @property
    def passed(self) -> bool:
        """True where nothing failed."""
        return not self.failures


def judge(
    result: Comparison, threshold: float, *, run_failure: str = "", allow_missing: bool = False
) -> Guard:
    """Hold every number that both runs have against the threshold.

    ``run_failure``: why the run ended early. ``allow_missing``: a run that lacks numbers of its baseline
    may pass. Raises RequestError where a run that did not fail has none in common with its baseline: then
    nothing is guarded.
    """
    if not result.matches and not run_failure:
        what = f"{result.after} and {result.before} have no size in common, so nothing can be compared"
        raise RequestError(Fault(where="--against", what=what, hint="measure the sizes of the baseline"))
    failed = [match for match in result.matches if match.high is not None and match.high < threshold]
    doubtful = [match for match in result.matches if match not in failed and _may_be_below(match, threshold)]
    told = [match for match in doubtful if not match.is_coarse]
    stopped = (f"{result.after} failed: {run_failure}",) if run_failure else ()
    lacks = (_missing(result),) if result.only_before else ()
    return Guard(
        threshold=threshold,
        failed=tuple(match.name for match in failed),
        doubtful=tuple(match.name for match in doubtful),
        missing=result.only_before,
        is_missing_allowed=allow_missing,
        run_failure=run_failure,
        failures=stopped
        + (() if allow_missing else tuple(f"{what} (--allow-missing lets it pass)" for what in lacks))
        + tuple(_told(match, result, f"is below {threshold:g}") for match in failed[:LONGEST])
        + _more(failed),
        warnings=(lacks if allow_missing else ())
        + tuple(_told(match, result, _doubt(match, threshold)) for match in told[:LONGEST])
        + _more(told)
        + _coarse(len(doubtful) - len(told), threshold),
        headline=_headline(result, threshold, failed, doubtful, run_failure, allow_missing),
    )


def _missing(result: Comparison) -> str:
    """Say which numbers of the baseline the run lacks."""
    names = result.only_before
    count = f"{len(names)} of {plural(len(names) + len(result.matches), 'number')} of {result.before}"
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    verb = "is" if len(names) == 1 else "are"
    return f"{count} {verb} missing: {'; '.join(names[:FEW])}{more}"


def _may_be_below(match: Match, threshold: float) -> bool:
    return (match.ratio if match.low is None else match.low) < threshold


def _doubt(match: Match, threshold: float) -> str:
    if match.low is None:
        return f"is below {threshold:g}, but measured once: no ground to fail"
    return f"may be below {threshold:g}: more repetitions would tell"


def _told(match: Match, result: Comparison, what: str) -> str:
    between = ""
    if match.low is not None:
        high = "above" if match.high is None else f"to {match.high:.3f}"
        between = f" ({match.low:.3f} {high})"
    return f"{match.name}: {match.ratio:.3f} of {result.before}{between} {what}"


def _more(matches: list[Match]) -> tuple[str, ...]:
    rest = len(matches) - LONGEST
    return (f"and {rest} more",) if rest > 0 else ()


def _coarse(count: int, threshold: float) -> tuple[str, ...]:
    """Return one line for all whose batches lie far apart by nature."""
    if not count:
        return ()
    what = f"{plural(count, 'number')} of messages below 64 KiB, or of fewer than 3 iterations"
    return (f"{what}: the batches lie too far apart to exclude a rate below {threshold:g}",)


def _headline(
    result: Comparison,
    threshold: float,
    failed: list[Match],
    doubtful: list[Match],
    run_failure: str,
    allow_missing: bool,
) -> str:
    count = plural(len(result.matches), "number")
    lost = [f"the run ended early: {run_failure.rstrip('.')}"] if run_failure else []
    if result.only_before and not allow_missing:
        lost.append(_missing(result))
    if failed:
        lost.append(f"{len(failed)} of {count} below {threshold:g} of {result.before}")
    if lost:
        return f"Failed: {'; '.join(lost)}."
    rest = f"; {len(doubtful)} may be" if doubtful else ""
    rest += f"; {_missing(result)}" if result.only_before else ""
    surely = "surely " if doubtful else ""
    return f"Passed: none of {count} is {surely}below {threshold:g} of {result.before}{rest}."


def rendered(result: Comparison, guard: Guard | None, form: str) -> str:
    """Return the comparison with what the guard found, as ``table``, ``markdown`` or ``json``."""
    if form == "json":
        whole = asdict(result)
        if guard is not None:
            whole["guard"] = {"passed": guard.passed, **asdict(guard)}
        return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    text = side_by_side.as_text(result) if form == "table" else side_by_side.as_markdown(result)
    if guard is None:
        return text
    return text + (f"\n{guard.headline}\n" if form == "table" else f"\n**{guard.headline}**\n")
