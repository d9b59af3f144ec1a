"""A comparison of hosts: what is held beside each other, and which host is the odd one. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ringleader.fabric.check_result import CheckResult, Verdict, listed
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.unread_areas import UnreadError, known

Hosts = Mapping[str, HostFacts]
Values = Callable[[HostFacts], Mapping[str, str | None]]
"""Subject → value as shown; the whole host's subject is empty. ``None``: not known there."""
Severity = Callable[[str, str], Verdict]
"""Two values that differ → the verdict."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One thing that should be the same on all hosts."""

    id: str
    """Stable name: ``hosts.nccl``."""
    title: str
    reads: str
    why: str
    remedy: str
    judge: Callable[[Hosts], Iterable[CheckResult]]
    """Yields differences alone; ``id`` and ``remedy`` are filled in by ``differences``."""
    warns: str = ""
    fails: str = ""
    source: str = ""

    def differences(self, hosts: Hosts) -> tuple[CheckResult, ...]:
        """Return what differs; empty: nothing. A defect of the comparison itself becomes a skip.

        Hosts that did not read in time what is compared are left out and named.
        """
        compared = {host: known(facts) for host, facts in hosts.items()}
        unread: dict[str, list[str]] = {}
        found: list[CheckResult] = []
        while len(compared) > 1:
            try:
                found = list(self.judge(compared))
                break
            except UnreadError as error:
                host = next(host for host, facts in compared.items() if facts is error.facts)
                unread.setdefault(str(error), []).append(host)
                del compared[host]
            except Exception as error:
                what = f"could not compare these facts: {type(error).__name__}: {error}"
                found = [CheckResult(id="", verdict=Verdict.SKIP, seen=what)]
                break
        found += [
            CheckResult(id="", verdict=Verdict.SKIP, seen=why, hosts=tuple(left_out))
            for why, left_out in unread.items()
        ]
        return tuple(dataclasses.replace(one, id=self.id, remedy=one.remedy or self.remedy) for one in found)


def same(values: Values, verdict: Verdict | Severity) -> Callable[[Hosts], Iterator[CheckResult]]:
    """Return a judge that wants each subject's value to be the same on all hosts that know it."""

    def judge(hosts: Hosts) -> Iterator[CheckResult]:
        by_host = {host: values(facts) for host, facts in hosts.items()}
        subjects = dict.fromkeys(subject for found in by_host.values() for subject in found)
        for subject in subjects:
            known = {host: found[subject] for host, found in by_host.items() if subject in found}
            shown = {host: value for host, value in known.items() if value is not None}
            yield from odd_hosts(shown, verdict, subject)

    return judge


def present(values: Values) -> Callable[[Hosts], Iterator[CheckResult]]:
    """Return a judge of values by name, where a name that one host lacks is a difference as well."""

    def judge(hosts: Hosts) -> Iterator[CheckResult]:
        by_host = {host: values(facts) for host, facts in hosts.items()}
        names = dict.fromkeys(name for found in by_host.values() for name in found)
        for name in sorted(names):
            shown = {host: found.get(name) or "" for host, found in by_host.items()}
            yield from odd_hosts(shown, Verdict.WARN, name)

    return judge


def text(read: Callable[[HostFacts], str | None]) -> Values:
    """Return the values of a comparison that has one for the whole host; empty text: not known."""
    return lambda facts: {"": read(facts) or None}


def odd_hosts(
    values: Mapping[str, str], verdict: Verdict | Severity, subject: str = ""
) -> Iterator[CheckResult]:
    """Yield one result for each value that is not the majority's, naming its hosts; nothing where all agree.

    With a tie nobody is odd: one result says all values, of all hosts.
    """
    groups: dict[str, list[str]] = {}
    for host, value in values.items():
        groups.setdefault(value, []).append(host)
    if len(groups) < 2:
        return
    ranked = sorted(groups.items(), key=lambda pair: -len(pair[1]))
    usual, usual_hosts = ranked[0]
    if len(ranked[1][1]) == len(usual_hosts):
        each = "; ".join(f"{_shown(value)} on {listed(hosts)}" for value, hosts in ranked)
        worst = min((_verdict(verdict, usual, value) for value, _ in ranked[1:]), key=list(Verdict).index)
        yield CheckResult(id="", verdict=worst, seen=each, subject=subject, hosts=tuple(values))
        return
    for value, hosts in ranked[1:]:
        yield CheckResult(
            id="",
            verdict=_verdict(verdict, usual, value),
            seen=_shown(value),
            expected=f"{_shown(usual)}, as on {_count(usual_hosts)}",
            subject=subject,
            hosts=tuple(hosts),
        )


def _verdict(verdict: Verdict | Severity, usual: str, value: str) -> Verdict:
    return verdict if isinstance(verdict, Verdict) else verdict(usual, value)


def _shown(value: str) -> str:
    return value or "not there"


def _count(hosts: list[str]) -> str:
    return hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts"
