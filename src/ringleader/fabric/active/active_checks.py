"""The checks of active tests, for the list of all checks; ``judge`` gives their verdicts. Pure.

They judge measurements between hosts, not the facts of one: as checks of a host they are skipped.
"""

from __future__ import annotations

from typing import Any

from ringleader.fabric.active.judge import EXPECTED_PART
from ringleader.fabric.active.latency_results import LATENCY_RATIO, LATENCY_SECONDS
from ringleader.fabric.active.link_isolation import CLEARED, FAR_SLOWER, GOOD, SCATTER, SLOW
from ringleader.fabric.active.link_results import FAR
from ringleader.fabric.active.slow_ranks import FAR_RATIO, RATIO, SCORE
from ringleader.fabric.active.slow_trunks import MEASURED, WHOLE_CUT
from ringleader.fabric.checks.check import Check

GROUP = "Active tests"
_MESSAGES = "MPI messages of our own between pairs of hosts, in rounds: each host has one partner at a time"


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"


def _check(id: str, title: str, *, why: str, **texts: Any) -> Check:
    return Check(id=id, group=GROUP, what=f"{title}. {why.rstrip('.')}", **texts)


ACTIVE_CHECKS: tuple[Check, ...] = (
    _check(
        "active.answer",
        "Each host answers each of its partners",
        reads=_MESSAGES,
        why="Two hosts that both reach the launcher may still not reach each other: firewalls, routes, "
        "interfaces with the same address.",
        remedy="let all ports pass between the hosts, or name the interface (--network-interface)",
        passes="all partners answered in time",
        fails="a host waited for its partner until the deadline, or the job did not end well",
    ),
    _check(
        "active.rate",
        "Rates between hosts, against the rate that the links should have",
        reads=_MESSAGES,
        why="Links that are all slow alike look healthy beside each other.",
        remedy="see which wire the ranks use, and the rate of the NICs' links",
        passes=f"each pair reaches {_percent(EXPECTED_PART)} of that rate, or none is given",
        fails="a pair does not",
        source="ours",
    ),
    _check(
        "active.host",
        "No host is slow in one direction with all good partners",
        reads=f"{_MESSAGES}; suspects a second time, with hosts that are known to be good",
        why="One slow host slows every collective operation of the job down.",
        remedy="look at that side of the host: port, cable, PCIe link, limits, other traffic",
        passes=f"each host reaches {_percent(GOOD)} of the median of the hosts' best rates "
        f"with somebody, or {_percent(SLOW)} with the median of its known-good partners (those that "
        f"reach {_percent(GOOD)} with somebody else)",
        warns="a host does not; or half of the hosts are slow, and nobody knows which half",
        fails=f"a host's median with known-good partners is below {_percent(FAR)}; or all of its rates "
        f"are below {_percent(FAR_SLOWER)}, and its partners all reach {_percent(CLEARED)} with others",
        skips="fewer than 3 hosts",
        source="ours",
    ),
    _check(
        "active.pair",
        "No pair is slow whose hosts are fast with others",
        reads=_MESSAGES,
        why="A bad path through the switches slows down only those who use it.",
        remedy="look at the path between the two: cables between switches, routing",
        passes=f"each pair reaches {_percent(SLOW)} of the median of the hosts' best rates",
        warns=f"a pair does not; or more than {_percent(SCATTER)} of the pairs do not, without a pattern",
        fails=f"a pair does not reach {_percent(FAR)}",
        source="ours",
    ),
    _check(
        "active.trunk",
        "No group of hosts is slow to another group",
        reads=_MESSAGES,
        why="Links between switches carry the traffic of many hosts; where they are slow, blaming the "
        "hosts would be wrong.",
        remedy="look at the links between the switches of the two groups",
        passes="there is no such group",
        warns=f"hosts are fast inside two groups, and {_percent(WHOLE_CUT)} of the pairs from one to the "
        f"other are slow ({_percent(MEASURED)} of them measured at least)",
        skips="fewer than 4 hosts",
        source="ours",
    ),
    _check(
        "active.latency",
        "Latency between hosts",
        reads="round trips of 8 bytes between pairs of hosts, by MPI; half of the median",
        why="Small messages and barriers wait for the slowest pair.",
        remedy="look for a longer path, a busy host, power saving, or another wire",
        passes="all pairs are alike",
        warns=f"a pair has {LATENCY_RATIO:g} times the median, and {LATENCY_SECONDS * 1e6:g} µs more",
        source="ours",
    ),
    _check(
        "active.compute",
        "No rank computes slower than the others",
        reads="the time of a matrix product of fixed size, all ranks at once",
        why="Each step of synchronous training takes as long as its slowest rank.",
        remedy="look for other processes, thermal or power limits, unequal bindings",
        passes="all ranks are alike",
        warns=f"a rank takes {RATIO:g} times the median, and its modified z-score is {SCORE:g} or more",
        fails=f"it takes {FAR_RATIO:g} times the median",
        skips="fewer than 3 ranks, or hosts that share one machine",
        source="modified z-score: Iglewicz and Hoaglin, 1993; the ratios are ours",
    ),
    _check(
        "active.memory",
        "No rank copies memory slower than the others",
        reads="a copy of a buffer four times as large as the largest cache, all ranks at once",
        why="Gradients that go through host memory are copied several times.",
        remedy="look for missing memory modules, memory of another NUMA node, other processes",
        passes="all ranks are alike",
        warns=f"as for active.compute: {RATIO:g} times the median",
        fails=f"{FAR_RATIO:g} times the median",
        skips="fewer than 3 ranks, or hosts that share one machine",
        source="as for active.compute",
    ),
    _check(
        "active.gpu",
        "No GPU copies to or from its host slower than the others",
        reads="copies between pinned memory and each GPU, by PyTorch",
        why="A GPU whose PCIe link has fewer lanes or a lower speed is fast until it has to exchange.",
        remedy="look at the GPU's PCIe link and its NUMA node",
        passes="all GPUs are alike",
        warns=f"a GPU takes {RATIO:g} times the median",
        fails=f"{FAR_RATIO:g} times the median",
        skips="no GPU, or no PyTorch that can use it",
        source="as for active.compute",
    ),
    _check(
        "active.rdma_rate",
        "Bandwidth by perftest or ucx_perftest",
        reads="ib_write_bw, else ucx_perftest tag_bw, between neighbours, in both directions",
        why="These use the NICs without MPI: what they reach and MPI does not is MPI's choice of wire.",
        remedy="as for active.host and active.pair",
        passes="as for active.host, active.pair and active.trunk",
        warns="as there",
        fails="as there, or a program measures nothing between two hosts that both have it",
        skips="no active RDMA port, or the programs are not installed",
        source="ours",
    ),
    _check(
        "active.rdma_latency",
        "Latency by perftest or ucx_perftest",
        reads="ib_send_lat, else ucx_perftest tag_lat, between neighbours",
        why="As for active.latency, without MPI.",
        remedy="as for active.latency",
        passes="all pairs are alike",
        warns="as for active.latency",
        skips="as for active.rdma_rate",
        source="ours",
    ),
)
