"""What the speed of ranks, of their memory and of their GPUs comes to. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping

from ringleader.fabric.active.measurements import ActiveResults, RankSpeed
from ringleader.fabric.active.slow_ranks import FAR_RATIO, LEAST_RANKS, RATIO, slow_ranks
from ringleader.fabric.check_result import CheckResult, Verdict
from ringleader.fabric.rate_text import byte_rate


def rank_results(results: ActiveResults) -> Iterable[CheckResult]:
    """Yield the verdicts on ranks against each other."""
    yield from _compute(results)
    yield from _memory(results)
    yield from _gpus(results)


def _compute(results: ActiveResults) -> Iterable[CheckResult]:
    times = {one.rank: one.kernel_seconds for one in results.ranks}
    yield from _stragglers(
        results,
        times,
        check="active.compute",
        what="time of a fixed matrix product",
        text=lambda seconds: f"{seconds * 1e3:.3g} ms",
        remedy="look for other processes on the host, a thermal or power limit, an unequal binding of ranks "
        "to cores, or fewer cores than the others have",
    )


def _memory(results: ActiveResults) -> Iterable[CheckResult]:
    rates = {one.rank: 1 / one.copy_rate for one in results.ranks if one.copy_rate}
    yield from _stragglers(
        results,
        rates,
        check="active.memory",
        what="copy of memory",
        text=lambda inverse: byte_rate(1 / inverse),
        remedy="look for missing memory modules, memory of another NUMA node, or other processes on the host",
    )


def _stragglers(
    results: ActiveResults,
    values: Mapping[int, float],
    *,
    check: str,
    what: str,
    text: Callable[[float], str],
    remedy: str,
) -> Iterable[CheckResult]:
    """``values``: rank → what is larger for slower ranks; ``text`` writes one of them."""
    if not values:
        yield CheckResult(id=check, verdict=Verdict.SKIP, seen=f"{what}: not measured")
        return
    ranks = {one.rank: one for one in results.ranks}
    median = statistics.median(values.values())
    best, worst = min(values.values()), max(values.values())
    span = f"{what}, {len(values)} ranks: median {text(median)}, best {text(best)}, worst {text(worst)}"
    if len(values) == 1:
        yield CheckResult(id=check, verdict=Verdict.PASS, seen=f"{what}: {text(median)}")
        return
    if results.one_machine or len(values) < LEAST_RANKS:
        why = "all hosts share one machine's cores" if results.one_machine else "two ranks have no majority"
        yield CheckResult(id=check, verdict=Verdict.SKIP, seen=f"{span}; not judged: {why}")
        return
    slow = slow_ranks(values)
    for one in slow:
        yield CheckResult(
            id=check,
            verdict=Verdict.FAIL if one.ratio >= FAR_RATIO else Verdict.WARN,
            seen=f"{what}: rank {one.rank} on {ranks[one.rank].host} has {text(one.value)}, "
            f"{one.ratio:.2f} times as slow as the median of {len(values)} ranks, {text(median)}",
            expected=f"less than {RATIO} times the median",
            remedy=remedy,
            subject=f"rank {one.rank}",
            hosts=(ranks[one.rank].host,),
        )
    if not slow:
        yield CheckResult(id=check, verdict=Verdict.PASS, seen=span)


def _gpus(results: ActiveResults) -> Iterable[CheckResult]:
    """Copies between GPUs and their hosts: each GPU against all others, each direction by itself."""
    check = "active.gpu"
    copies = [(one, gpu) for one in results.ranks for gpu in one.gpus]
    notes = {one.gpu_note: one.host for one in results.ranks if one.gpu_note}
    for why, host in notes.items():
        yield CheckResult(id=check, verdict=Verdict.SKIP, seen=f"{host}: {why}", hosts=(host,))
    if not copies:
        if not notes:
            yield CheckResult(id=check, verdict=Verdict.SKIP, seen="no host has a GPU that ranks see")
        return
    found = []
    for word, name in (("to the GPU", "to_gpu"), ("from the GPU", "from_gpu")):
        rates = {number: getattr(gpu, name) for number, (_, gpu) in enumerate(copies)}
        for one in slow_ranks({number: 1 / rate for number, rate in rates.items() if rate > 0}):
            rank, gpu = copies[one.rank]
            found.append(
                _slow_gpu(rank, gpu.device, word, rates[one.rank], statistics.median(rates.values()))
            )
    yield from found
    if not found:
        to_gpu, from_gpu = [gpu.to_gpu for _, gpu in copies], [gpu.from_gpu for _, gpu in copies]
        seen = f"{len(copies)} GPUs: to the GPU {byte_rate(*to_gpu)}, from it {byte_rate(*from_gpu)}"
        yield CheckResult(id=check, verdict=Verdict.PASS, seen=seen.replace("1 GPUs", "1 GPU"))


def _slow_gpu(rank: RankSpeed, device: int, word: str, rate: float, median: float) -> CheckResult:
    return CheckResult(
        id="active.gpu",
        verdict=Verdict.WARN if median < FAR_RATIO * rate else Verdict.FAIL,
        seen=f"GPU {device} of {rank.host}: {byte_rate(rate)} {word}; median of all GPUs {byte_rate(median)}",
        expected=f"at least {byte_rate(median / RATIO)}",
        remedy="look at the PCIe link of the GPU (width, generation) and at its NUMA node",
        subject=f"GPU {device}",
        hosts=(rank.host,),
    )
