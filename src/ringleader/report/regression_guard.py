"""Is a run as fast as another one, but for a part that is allowed? Pure.

A number fails where its loss is sure: the whole interval of the ratio lies below the threshold. An interval
that the threshold divides, and a number that was measured once, are reported and do not fail. A run that
failed does, and so does one that lacks numbers of its baseline: what was not measured may be as slow as it
likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ringleader.errors import RequestError
from ringleader.fabric.check_result import listed
from ringleader.number_format import plural
from ringleader.report.compare import Comparison, Match

LONGEST, FEW = 10, 4
"""Numbers that are reported by name, a line each and within one sentence; JSON has all of them."""


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
    """Compare every number that both runs have with the threshold.

    ``run_failure``: why the run ended early. ``allow_missing``: a run that lacks numbers of its baseline
    may pass. Raises RequestError where a run that did not fail has none in common with its baseline: then
    nothing is guarded.
    """
    if not result.matches and not run_failure:
        what = f"{result.after} and {result.before} have no size in common, so nothing can be compared"
        raise RequestError(what, where="--against", hint="measure the sizes of the baseline")
    failed = [match for match in result.matches if match.high is not None and match.high < threshold]
    may_be = [m for m in result.matches if (m.ratio if m.low is None else m.low) < threshold]
    doubtful = [match for match in may_be if match not in failed]
    named = [match for match in doubtful if not match.is_coarse]
    lacks = (_missing(result),) if result.only_before else ()
    count = plural(len(result.matches), "number")
    below = f"below {threshold:g}"

    def doubt(match: Match) -> str:
        once = f"is {below}, but measured once: no ground to fail"
        return once if match.low is None else f"may be {below}: more repetitions would tell"

    coarse = plural(len(doubtful) - len(named), "number")
    coarse += " of messages below 64 KiB, or of fewer than 3 iterations: the batches lie too far apart to "
    coarse += f"exclude a rate {below}"
    lost = [f"the run ended early: {run_failure.rstrip('.')}"] if run_failure else []
    lost += [] if allow_missing else lacks
    lost += [f"{len(failed)} of {count} {below} of {result.before}"] if failed else []
    rest = f"; {len(doubtful)} may be" if doubtful else ""
    rest += "".join(f"; {what}" for what in lacks)
    passed = f"Passed: none of {count} is {'surely ' if doubtful else ''}{below} of {result.before}{rest}."
    return Guard(
        threshold=threshold,
        failed=tuple(match.name for match in failed),
        doubtful=tuple(match.name for match in doubtful),
        missing=result.only_before,
        is_missing_allowed=allow_missing,
        run_failure=run_failure,
        failures=(
            *((f"{result.after} failed: {run_failure}",) if run_failure else ()),
            *(f"{what} (--allow-missing lets it pass)" for what in lacks if not allow_missing),
            *_lines(result, failed, lambda match: f"is {below}"),
        ),
        warnings=(
            *(lacks if allow_missing else ()),
            *_lines(result, named, doubt),
            *([coarse] if len(doubtful) > len(named) else []),
        ),
        headline=f"Failed: {'; '.join(lost)}." if lost else passed,
    )


def _missing(result: Comparison) -> str:
    """Say which numbers of the baseline the run lacks."""
    names = result.only_before
    count = f"{len(names)} of {plural(len(names) + len(result.matches), 'number')} of {result.before}"
    verb = "is" if len(names) == 1 else "are"
    return f"{count} {verb} missing: {listed(names, FEW, '; ')}"


def _lines(result: Comparison, matches: Sequence[Match], what: Callable[[Match], str]) -> list[str]:
    """Return a line for each of the first matches, and how many more there are."""
    found = []
    for match in matches[:LONGEST]:
        high = "above" if match.high is None else f"to {match.high:.3f}"
        between = "" if match.low is None else f" ({match.low:.3f} {high})"
        found.append(f"{match.name}: {match.ratio:.3f} of {result.before}{between} {what(match)}")
    rest = len(matches) - LONGEST
    return [*found, f"and {rest} more"] if rest > 0 else found
