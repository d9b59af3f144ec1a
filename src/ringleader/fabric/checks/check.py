"""Checks as rows of ``checks.toml``, each with the function that judges facts by it; no check itself. Pure.

A check names its judge by ``@judge(id)``, or has a key that names a rule for all checks of its kind
(``rules``). Comparisons of hosts and keys of profiles are rows of the same file.
"""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringleader.fabric.check_result import CheckResult, Verdict, skipped
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.unread_areas import UnreadError, known

Found = CheckResult | Iterable[CheckResult]
Judge = Callable[..., Found]
"""Takes a host's facts, or facts by host; its results have no id, ``Check`` fills that in."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What a host must have before a check has anything to judge: an RDMA device, a GPU."""

    id: str
    """Represents in the results all checks that are skipped because of it: ``rdma``."""
    holds: Callable[[HostFacts], object]
    otherwise: str
    """The reason of the skip: ``no RDMA device here``."""
    within: Condition | None = None
    """A condition that must hold first, and whose reason is given instead where it does not."""

    def unmet(self, facts: HostFacts) -> Condition | None:
        """Return the first condition that does not hold, the outermost first; ``None``: all hold."""
        outer = self.within.unmet(facts) if self.within else None
        return outer or (None if self.holds(facts) else self)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One row: a check of a host, a comparison of hosts, or a key of a profile."""

    id: str
    """Stable name: ``port.state``."""
    group: str
    """Heading under which it is shown: ``RDMA ports``."""
    what: str
    """What should be so, and in further sentences why it matters."""
    reads: str = ""
    """What is read, as files or calls: ``/sys/class/infiniband/*/ports/*/state``."""
    remedy: str = ""
    """What to do; given with each warning and failure that has no remedy of its own."""
    passes: str = ""
    warns: str = ""
    """When it warns; empty: never."""
    fails: str = ""
    """When it fails; empty: never."""
    skips: str = ""
    """When it cannot judge, apart from ``needs``."""
    source: str = ""
    """Where its thresholds are from; ``ours``: from nobody else. Empty: it has none."""
    needs: Condition | None = None
    follows: tuple[str, ...] = ()
    """Checks whose failure or warning explains this one's; with a star behind it, on any device."""
    rule: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Its other keys: the rule, and the rule's limits."""
    judge: Judge | None = None

    @property
    def worst(self) -> Verdict:
        """The verdict of a check that has one kind of bad result."""
        return Verdict.WARN if self.warns else Verdict.FAIL

    def results(self, facts: HostFacts) -> tuple[CheckResult, ...]:
        """Return the verdicts, at least one. What was not read in time is a skip, and so is a defect."""
        facts = known(facts)
        try:
            unmet = self.needs.unmet(facts) if self.needs else None
            judged = self.judge(facts) if self.judge and not unmet else ()
            found = [skipped(unmet.otherwise)] if unmet else results_of(judged)
        except UnreadError as unread:
            found = [skipped(str(unread))]
        except Exception as error:
            found = [skipped(f"the check could not judge these facts: {type(error).__name__}: {error}")]
        return tuple(self.complete(one) for one in found or [skipped("nothing to judge here")])

    def complete(self, result: CheckResult) -> CheckResult:
        """Return a result with the check's id and, where it is bad and has none, its remedy."""
        remedy = result.remedy or (self.remedy if result.is_bad else "")
        return dataclasses.replace(result, id=self.id, remedy=remedy)


def results_of(found: Found) -> list[CheckResult]:
    """Return what a judge returned or yields as a list."""
    return [found] if isinstance(found, CheckResult) else list(found)


CONDITIONS: dict[str, Condition] = {}
JUDGES: dict[str, Judge] = {}
RULES: dict[str, Callable[[HostFacts, Check], Found]] = {}
"""By the name that rows have for them; filled by the modules that define them."""


def condition(
    id: str, otherwise: str, holds: Callable[[HostFacts], object], within: Condition | None = None
) -> Condition:
    """Return a condition that rows may name as what they need."""
    CONDITIONS[id] = Condition(id=id, holds=holds, otherwise=otherwise, within=within)
    return CONDITIONS[id]


def judge(id: str) -> Callable[[Judge], Judge]:
    """Return a decorator that makes a function the judge of a check."""
    return lambda function: JUDGES.setdefault(id, function)


def rule(key: str) -> Callable[[Callable[[HostFacts, Check], Found]], Callable[[HostFacts, Check], Found]]:
    """Return a decorator that makes a function the judge of all checks whose row has a key."""
    return lambda function: RULES.setdefault(key, function)


@functools.cache
def rows() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Return the data file: group → id → keys."""
    return tomllib.loads(Path(__file__).with_name("checks.toml").read_text("utf-8"))


TEXTS = {"pass": "passes", "warn": "warns", "fail": "fails", "skip": "skips"}
FIELDS = {one.name for one in dataclasses.fields(Check)}


def checks_of(*groups: str) -> tuple[Check, ...]:
    """Return the checks of some groups, in the data file's order, with the judges that are known by now."""
    return tuple(_check(group, id, row) for group in groups for id, row in rows()[group].items())


def _check(group: str, id: str, row: Mapping[str, Any]) -> Check:
    named = {TEXTS.get(key, key): value for key, value in row.items()}
    fields = {key: value for key, value in named.items() if key in FIELDS}
    needs = CONDITIONS[fields.pop("needs")] if "needs" in fields else None
    follows = tuple(fields.pop("follows", ()))
    own = {key: value for key, value in named.items() if key not in FIELDS}
    found = Check(id=id, group=group, needs=needs, follows=follows, rule=own, **fields)
    of_kind = next((RULES[key] for key in own if key in RULES), None)
    by_rule = (lambda facts: of_kind(facts, found)) if of_kind else None
    return dataclasses.replace(found, judge=JUDGES.get(id) or by_rule)


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
        yield skipped(f"{condition.otherwise}: {what} nothing to judge", id=condition.id)


def _unmet(check: Check, facts: HostFacts) -> Condition | None:
    try:
        return check.needs.unmet(known(facts)) if check.needs else None
    except Exception:
        return None  # its own results say so


def with_causes(
    results: Sequence[CheckResult],
    follows: Mapping[str, Sequence[str]],
    device: Callable[[str], str] = lambda subject: subject.partition(" ")[0],
) -> tuple[CheckResult, ...]:
    """Return the results, each bad one with the bad one that explains it, where there is one.

    ``follows``: check → checks that explain it. A result explains another of the same device, or one that is
    said of the whole host; a check with a star behind it those of any device. A difference between hosts is
    explained where all odd hosts have such a result, or one of two hosts. ``device``: subject → what it is a
    part of.
    """
    bad: dict[str, list[CheckResult]] = {}
    for one in results:
        if one.is_bad:
            bad.setdefault(one.id, []).append(one)

    def explaining(one: CheckResult) -> Iterator[CheckResult]:
        for id in follows.get(one.id, ()):
            for cause in bad.get(id.removesuffix("*"), ()):
                apart = one.subject and cause.subject and device(one.subject) != device(cause.subject)
                if (id.endswith("*") or not apart) and meet(one, cause):
                    yield cause

    def root(one: CheckResult, passed_by: frozenset[str]) -> CheckResult:
        if one.cause:
            known = (each for found in bad.values() for each in found if each.name == one.cause)
            return next((each for each in known if meet(one, each)), one)
        causes = list(explaining(one)) if one.id not in passed_by else []
        covered = {host for cause in causes for host in cause.hosts or one.hosts}
        is_pair = len(one.hosts) == 2 and not one.expected
        if not causes or not (is_pair or {*one.hosts} <= covered):
            return one
        return root(causes[0], passed_by | {one.id})

    found = ((one, root(one, frozenset()) if one.is_bad else one) for one in results)
    return tuple(dataclasses.replace(one, cause="" if cause is one else cause.name) for one, cause in found)


def meet(one: CheckResult, other: CheckResult) -> bool:
    """Tell whether two results may be of one host."""
    return not one.hosts or not other.hosts or bool({*one.hosts} & {*other.hosts})
