"""A check of one host: what it reads, why it matters, how to mend it, and the function that judges. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ringleader.fabric.check_result import CheckResult, Verdict
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.unread_areas import UnreadError, known

Judge = Callable[[HostFacts], Iterable[CheckResult]]
"""Yields verdicts whose ``id`` is empty; ``Check.results`` fills it in."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What a host must have before a check has anything to judge: an RDMA device, a GPU."""

    id: str
    """Stands in the results for all checks that are skipped because of it: ``rdma``."""
    holds: Callable[[HostFacts], bool]
    otherwise: str
    """The reason of the skip: ``no RDMA device here``."""
    within: Condition | None = None
    """A condition that must hold first, and whose reason is told instead where it does not."""

    def unmet(self, facts: HostFacts) -> Condition | None:
        """Return the first condition that does not hold, the outermost first; ``None``: all hold."""
        outer = self.within.unmet(facts) if self.within else None
        return outer or (None if self.holds(facts) else self)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check of a host."""

    id: str
    """Stable name: ``port.state``."""
    title: str
    group: str
    """Heading under which it is shown: ``RDMA ports``."""
    reads: str
    """What is read, as files or calls: ``/sys/class/infiniband/*/ports/*/state``."""
    why: str
    """Why it matters, one or two sentences."""
    remedy: str
    """What to do; told with each warning and failure that has no remedy of its own."""
    passes: str
    """When it passes."""
    warns: str = ""
    """When it warns; empty: never."""
    fails: str = ""
    """When it fails; empty: never."""
    skips: str = ""
    """When it cannot judge, apart from ``needs``."""
    source: str = ""
    """Where its thresholds are from; ``ours``: from nobody else. Empty: it has none."""
    needs: Condition | None = None
    judge: Judge

    def results(self, facts: HostFacts) -> tuple[CheckResult, ...]:
        """Return the verdicts, at least one. What was not read in time is a skip, and so is a defect."""
        facts = known(facts)
        try:
            unmet = self.needs.unmet(facts) if self.needs else None
            found = [skipped(unmet.otherwise)] if unmet else list(self.judge(facts))
        except UnreadError as unread:
            found = [skipped(str(unread))]
        except Exception as error:
            found = [skipped(f"the check could not judge these facts: {type(error).__name__}: {error}")]
        return tuple(self._complete(one) for one in found or [skipped("nothing to judge here")])

    def _complete(self, result: CheckResult) -> CheckResult:
        bad = result.verdict in (Verdict.FAIL, Verdict.WARN)
        remedy = result.remedy or (self.remedy if bad else "")
        return dataclasses.replace(result, id=self.id, remedy=remedy)


def check(
    id: str,
    title: str,
    *,
    group: str,
    reads: str,
    why: str,
    remedy: str,
    passes: str,
    warns: str = "",
    fails: str = "",
    skips: str = "",
    source: str = "",
    needs: Condition | None = None,
) -> Callable[[Judge], Check]:
    """Return a decorator that makes a judging function a ``Check``; arguments as its fields."""

    def made(judge: Judge) -> Check:
        return Check(
            id=id,
            title=title,
            group=group,
            reads=reads,
            why=why,
            remedy=remedy,
            passes=passes,
            warns=warns,
            fails=fails,
            skips=skips,
            source=source,
            needs=needs,
            judge=judge,
        )

    return made


def judge_all(checks: Iterable[Check], facts: HostFacts) -> Iterator[CheckResult]:
    """Yield the verdicts of checks in their order; those whose condition is not met as one skip for all."""
    unmet: dict[str, tuple[Condition, int]] = {}
    for one in checks:
        condition = _unmet(one, facts)
        if condition:
            unmet[condition.id] = condition, unmet.get(condition.id, (condition, 0))[1] + 1
        else:
            yield from one.results(facts)
    for condition, count in unmet.values():
        what = "1 check has" if count == 1 else f"{count} checks have"
        yield CheckResult(
            id=condition.id, verdict=Verdict.SKIP, seen=f"{condition.otherwise}: {what} nothing to judge"
        )


def _unmet(check: Check, facts: HostFacts) -> Condition | None:
    try:
        return check.needs.unmet(known(facts)) if check.needs else None
    except Exception:
        return None  # its own results say so


def passed(seen: str, *, expected: str = "", subject: str = "") -> CheckResult:
    """Return that all is well with one subject, or with all of them."""
    return CheckResult(id="", verdict=Verdict.PASS, seen=seen, expected=expected, subject=subject)


def warned(seen: str, *, expected: str = "", subject: str = "", remedy: str = "") -> CheckResult:
    """Return a warning."""
    return CheckResult(
        id="", verdict=Verdict.WARN, seen=seen, expected=expected, subject=subject, remedy=remedy
    )


def failed(seen: str, *, expected: str = "", subject: str = "", remedy: str = "") -> CheckResult:
    """Return a failure."""
    return CheckResult(
        id="", verdict=Verdict.FAIL, seen=seen, expected=expected, subject=subject, remedy=remedy
    )


def skipped(seen: str, *, subject: str = "") -> CheckResult:
    """Return that it could not be judged, with the reason."""
    return CheckResult(id="", verdict=Verdict.SKIP, seen=seen, subject=subject)
