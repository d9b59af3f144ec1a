"""Results of several hosts as one list: what is said of all hosts once, else with the hosts' names. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ringleader.fabric.check_result import CheckResult

MOST_VARIANTS = 3
"""What different hosts say in different words is told host by host up to this number of wordings."""


def merged(by_host: Mapping[str, Sequence[CheckResult]]) -> tuple[CheckResult, ...]:
    """Return each result once, with the hosts it is said of; none named: all of them.

    Results that differ in what was seen alone (bytes that are free) become one where there are many.
    """
    every = tuple(by_host)
    found: dict[tuple[str, str, str, str], dict[str, list[str]]] = {}
    examples: dict[tuple[str, str, str, str, str], CheckResult] = {}
    for host, results in by_host.items():
        for one in results:
            key = (one.id, str(one.verdict), one.subject, one.remedy)
            found.setdefault(key, {}).setdefault(one.seen, []).append(host)
            examples.setdefault((*key, one.seen), one)
    rows = []
    for key, variants in found.items():
        if len(variants) > MOST_VARIANTS:
            first = next(iter(variants))
            hosts = [host for some in variants.values() for host in some]
            seen = f"{first} on {variants[first][0]}, and similar on {len(set(hosts)) - 1} more"
            some_example = dataclasses.replace(examples[(*key, first)], seen=seen)
            rows.append(_said_of(some_example, hosts, every))
        else:
            rows += [_said_of(examples[(*key, seen)], hosts, every) for seen, hosts in variants.items()]
    return tuple(rows)


def _said_of(result: CheckResult, hosts: Sequence[str], every: Sequence[str]) -> CheckResult:
    named = [host for host in every if host in hosts]
    return dataclasses.replace(result, hosts=() if len(named) == len(every) else tuple(named))
