"""What all active measurements (``active_tests``) come to, as results of checks. Pure.

``fabric.active`` says which host, pair or trunk is slow; here are the others: who did not answer, what
perftest reached, which rank or GPU is slower than its like.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ringleader.bench.pair_answers import latencies_of, rates_of
from ringleader.bench.rank_speed import GpuCopy, RankSpeed
from ringleader.doctor.active_tests import ActiveResults, ProgramPairs
from ringleader.fabric.active.link_results import MESSAGES, latency_results, link_results
from ringleader.fabric.check_result import CheckResult, Verdict, failed, named, passed, skipped, warned
from ringleader.fabric.rate_text import bit_rate, byte_rate
from ringleader.measurements.point_to_point import Silence, Transfer

EXPECTED_PART = 0.8
"""Part of an expected rate that must be reached: headers and MPI take some. Ours."""
RATE, LATENCY, GPU_RATE = "active.rdma_rate", "active.rdma_latency", "active.rdma_gpu"
"""Checks of what programs of others measure; the last: from memory of GPUs."""
RATIO, FAR_RATIO = 1.2, 2.0
"""A rank is slow where it takes this many times the median, and a failure from the second on. Ours."""
SCORE = 3.5
"""And where its modified z-score is at least this: Iglewicz and Hoaglin, 1993."""
LEAST_RANKS = 3
"""With two ranks nobody knows which of them is the exception."""
LEAST_DEVIATION = 0.02
"""Part of the median below which a deviation is noise, however even the others are. Ours."""


def judge(results: ActiveResults, *, expected_rate: float | None = None) -> tuple[CheckResult, ...]:
    """Return the verdicts. ``expected_rate``: bits per second that each link should have."""
    rates = results.best_rates()
    latencies = latency_results(results.lowest_latencies(), one_machine=results.one_machine)
    return (
        *named("active.answer", _answers(results, rates)),
        *named("active.rate", _rate(results, rates, expected_rate)),
        *link_results(rates),
        *named("active.latency", latencies),
        *named("active.compute", _computing(results)),
        *named("active.memory", _copying(results)),
        *named("active.gpu", _gpus(results.ranks)),
        *(one for check in (RATE, LATENCY, GPU_RATE) for one in named(check, _programs(results, check))),
    )


def _answers(results: ActiveResults, rates: Mapping[tuple[str, str], float]) -> Iterable[CheckResult]:
    """Who did not answer, and a job that did not end well."""
    pairs: dict[frozenset[int], list[Silence]] = {}
    for one in (*results.silences, *(one for pair in results.programs for one in pair.run.silences)):
        pairs.setdefault(frozenset((one.source, one.target)), []).append(one)
    names = results.hosts
    for waits in pairs.values():
        host, partner = names[waits[0].source], names[waits[0].target]
        yield failed(
            "; ".join(
                f"{names[one.source]} waited {one.seconds:.1f} s for {names[one.target]} ({one.during})"
                for one in waits
            ),
            remedy=f"see whether a firewall between {host} and {partner} lets all ports pass, and name the "
            "interface that MPI is to use (--network-interface)",
            subject=f"{host} ↔ {partner}",
            hosts=(host, partner),
        )
    if results.failure:
        hosts = (results.failed_host,) if results.failed_host in results.hosts else ()
        said = f"the measurement did not end well: {results.failure}"
        yield failed(said, remedy="repair that first", hosts=hosts)
    if not pairs and not results.failure:
        if count := len({frozenset(pair) for pair in rates}):
            yield passed(
                f"both hosts of each of {count} pairs answered" if count > 1 else "both hosts answered"
            )
        else:
            yield skipped("one host has nobody to talk to")


def _rate(
    results: ActiveResults, rates: Mapping[tuple[str, str], float], expected: float | None
) -> Iterable[CheckResult]:
    """All rates against the one that the links should have."""
    if not rates:
        yield skipped("no rate between hosts was measured")
        return
    median = statistics.median(rates.values())
    seen = f"{bit_rate(*rates.values())}, median {bit_rate(median)}, by {MESSAGES}"
    seen += f" ({results.mpi})" if results.mpi else ""
    if expected is None:
        yield passed(seen, expected="no rate of the links is given to compare with")
        return
    least = EXPECTED_PART * expected
    slow = {pair: rate for pair, rate in rates.items() if rate < least}
    if slow:
        seen = f"{len(slow)} of {len(rates)} directed pairs: {bit_rate(*slow.values())}; all: {seen}"
    yield (failed if slow else passed)(
        seen,
        expected=f"at least {bit_rate(least)}: {100 * EXPECTED_PART:.0f}% of {bit_rate(expected)}",
        remedy="see which wire the ranks use, and the rate of the NICs' links" if slow else "",
        hosts=tuple(dict.fromkeys(host for pair in slow for host in pair)),
    )


# --- perftest and ucx_perftest ----------------------------------------------------------------------------


def _programs(results: ActiveResults, check: str) -> Iterable[CheckResult]:
    """Yield rates, judged like those of messages, or latencies; else why there are none."""
    found = [one for pairs in results.programs for one in _of_program(results, pairs, check)]
    yield from found
    wanted, what = "host", "perftest and ucx_perftest were not run"
    if check == GPU_RATE:
        wanted, what = "cuda", "no program measured from memory of GPUs"
    reasons: dict[str, tuple[str, ...]] = {}
    for note in results.notes:
        if note.memory == wanted and (note.is_late or not found):
            reasons[note.reason] = (*reasons.get(note.reason, ()), *note.hosts)
    for why, hosts in reasons.items() or ([] if found else [(what, ())]):
        yield skipped(why, hosts=hosts)


def _of_program(results: ActiveResults, pairs: ProgramPairs, check: str) -> Iterable[CheckResult]:
    """Yield the verdicts of one check on one run; each port of a host is judged like a host."""
    is_gpu = pairs.run.memory == "cuda"
    if is_gpu is not (check == GPU_RATE):
        return
    by_perftest = pairs.run.program == "perftest"
    if check == LATENCY:
        program = "ib_send_lat" if by_perftest else "ucx_perftest tag_lat"
    else:
        program = "ib_write_bw" if by_perftest else "ucx_perftest tag_bw"
    title = f"{program} in GPU memory" if is_gpu else program
    names, transfers = _ports(results, pairs)
    made: Iterable[CheckResult] = ()
    if check == LATENCY and (latencies := latencies_of(names, transfers)):
        made = latency_results(latencies, one_machine=results.one_machine)
    elif check != LATENCY and (rates := rates_of(names, transfers)):
        # What fewer than 3 or 4 hosts cannot tell is said of the messages.
        made = (one for one in link_results(rates) if one.verdict is not Verdict.SKIP)
    host_of = {name: results.hosts[at % len(results.hosts)] for at, name in enumerate(names)}
    for one in made:
        hosts = tuple(dict.fromkeys(host_of[name] for name in one.hosts))
        yield replace(one, seen=f"{title}: {one.seen}", hosts=hosts)
    for error in pairs.errors:
        if error.test == program.split()[-1]:
            ends = results.hosts[error.source], results.hosts[error.target]
            yield failed(
                f"{title} from {' to '.join(ends)}: {error.why}",
                remedy="run the two by hand; see whether both ports are in one fabric, the same RoCE version "
                "and partition, and whether a firewall lets its TCP port pass",
                subject=" → ".join(ends),
                hosts=ends,
            )


def _ports(results: ActiveResults, pairs: ProgramPairs) -> tuple[list[str], list[Transfer]]:
    """Return names, and transfers that count in them: hosts, or each port of each host, where there are more.

    The n-th block of names is of the n-th port of all hosts; a transfer names the port of its source.
    One of a port that is not among them belongs nowhere.
    """
    rails, count = max(map(len, pairs.ports)), len(results.hosts)
    if rails == 1:
        return list(results.hosts), list(pairs.run.transfers)
    ports = [(*own, *[""] * (rails - len(own))) for own in pairs.ports]
    names = [
        f"{host} {own[rail]}" for rail in range(rails) for host, own in zip(results.hosts, ports, strict=True)
    ]
    return names, [
        replace(one, source=rail * count + one.source, target=rail * count + one.target)
        for one in pairs.run.transfers
        if one.device in pairs.ports[one.source]
        for rail in [ports[one.source].index(one.device)]
    ]


# --- ranks and GPUs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Slow:
    """What takes longer than its like."""

    index: int
    value: float
    """Seconds, or whatever was compared; larger is slower."""
    ratio: float
    """To the median."""


def slow_among(values: Mapping[int, float]) -> tuple[Slow, ...]:
    """Return whose value is far above the others', the slowest first.

    ``values``: larger is slower. Both the ratio to the median and the modified z-score (median absolute
    deviation in place of the standard deviation, so that a straggler does not hide itself) must say so.
    """
    if len(values) < LEAST_RANKS or (median := statistics.median(values.values())) <= 0:
        return ()
    deviation = statistics.median(abs(value - median) for value in values.values())
    deviation = max(deviation, LEAST_DEVIATION * median)
    slow = [
        Slow(index=index, value=value, ratio=value / median)
        for index, value in values.items()
        if value / median >= RATIO and 0.6745 * (value - median) / deviation >= SCORE
    ]
    return tuple(sorted(slow, key=lambda one: -one.ratio))


def _computing(results: ActiveResults) -> Iterable[CheckResult]:
    return _stragglers(
        results,
        {one.rank: one.kernel_seconds for one in results.ranks},
        what="time of a fixed matrix product",
        text=lambda seconds: f"{seconds * 1e3:.3g} ms",
        remedy="look for other processes on the host, a thermal or power limit, an unequal binding of ranks "
        "to cores, or fewer cores than the others have",
    )


def _copying(results: ActiveResults) -> Iterable[CheckResult]:
    return _stragglers(
        results,
        {one.rank: 1 / one.copy_rate for one in results.ranks if one.copy_rate},
        what="copy of memory",
        text=lambda inverse: byte_rate(1 / inverse),
        remedy="look for missing memory modules, memory of another NUMA node, or other processes on the host",
    )


def _stragglers(
    results: ActiveResults,
    values: Mapping[int, float],
    *,
    what: str,
    text: Callable[[float], str],
    remedy: str,
) -> Iterable[CheckResult]:
    """``values``: rank → what is larger for slower ranks; ``text`` writes one of them."""
    if not values:
        yield skipped(f"{what}: not measured")
        return
    median = statistics.median(values.values())
    best, worst = min(values.values()), max(values.values())
    span = f"{what}, {len(values)} ranks: median {text(median)}, best {text(best)}, worst {text(worst)}"
    if len(values) == 1:
        yield passed(f"{what}: {text(median)}")
        return
    if results.one_machine or len(values) < LEAST_RANKS:
        why = "all hosts share one machine's cores" if results.one_machine else "two ranks have no majority"
        yield skipped(f"{span}; not judged: {why}")
        return
    hosts = {one.rank: one.host for one in results.ranks}
    slow = slow_among(values)
    for one in slow:
        yield (failed if one.ratio >= FAR_RATIO else warned)(
            f"{what}: rank {one.index} on {hosts[one.index]} has {text(one.value)}, "
            f"{one.ratio:.2f} times as slow as the median of {len(values)} ranks, {text(median)}",
            expected=f"less than {RATIO} times the median",
            remedy=remedy,
            subject=f"rank {one.index}",
            hosts=(hosts[one.index],),
        )
    if not slow:
        yield passed(span)


def _gpus(ranks: Iterable[RankSpeed]) -> Iterable[CheckResult]:
    """Copies between GPUs and their hosts: each GPU among those of its model, each direction by itself."""
    models: dict[str, list[tuple[RankSpeed, GpuCopy]]] = {}
    notes = {one.gpu_note: one.host for one in ranks if one.gpu_note}
    for why, host in notes.items():
        yield skipped(f"{host}: {why}", hosts=(host,))
    for rank in ranks:
        for gpu in rank.gpus:
            models.setdefault(gpu.name, []).append((rank, gpu))
    if not models and not notes:
        yield skipped("no host has a GPU that ranks see")
    for model, copies in models.items():
        named = f" of {model}" if len(models) > 1 else ""
        found = [
            one
            for word, name in (("to the GPU", "to_gpu"), ("from the GPU", "from_gpu"))
            for one in _slow_gpus(copies, word, [getattr(gpu, name) for _, gpu in copies], named)
        ]
        yield from found
        if not found:
            to_gpu, from_gpu = [gpu.to_gpu for _, gpu in copies], [gpu.from_gpu for _, gpu in copies]
            count = f"{len(copies)} GPU{'s' * (len(copies) > 1)}{f' ({model})' if named else ''}"
            yield passed(f"{count}: to the GPU {byte_rate(*to_gpu)}, from it {byte_rate(*from_gpu)}")


def _slow_gpus(
    copies: list[tuple[RankSpeed, GpuCopy]], word: str, rates: list[float], model: str
) -> Iterable[CheckResult]:
    median = statistics.median(rates)
    for one in slow_among({number: 1 / rate for number, rate in enumerate(rates) if rate > 0}):
        (rank, gpu), rate = copies[one.index], rates[one.index]
        yield (warned if median < FAR_RATIO * rate else failed)(
            f"GPU {gpu.device} of {rank.host}: {byte_rate(rate)} {word}; median of all GPUs{model} "
            f"{byte_rate(median)}",
            expected=f"at least {byte_rate(median / RATIO)}",
            remedy="look at the PCIe link of the GPU (width, generation) and at its NUMA node",
            subject=f"GPU {gpu.device}",
            hosts=(rank.host,),
        )
