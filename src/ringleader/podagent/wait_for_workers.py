"""Wait until every worker answers: rounds of questions with growing pauses, and a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from ringleader.errors import Fault, RefusedError
from ringleader.podagent.answers import Answer, Ask, State

AT_ONCE = 64
"""Hosts that are asked side by side."""
FIRST_PAUSE, GROWTH, LONGEST_PAUSE = 0.1, 1.5, 5.0
REPORT_EVERY = 10.0
NAMED = 5
"""Hosts that a line of progress names."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long to wait, in seconds."""

    timeout: float
    """For a host that has an address and does not answer, from when it was first seen to have one. Hosts
    without an address have no limit: their Pods are queued, or their images pulled, and nobody knows for how
    long."""
    whole: float | None = None
    """For all, whatever they wait for; it takes the place of ``timeout``. ``None``: no such limit."""
    knows_where: bool = True
    """False: we may look in the wrong place. Then the launcher goes on when the time is over and every host
    has an address, but none has said a word."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The clock and the ears of whoever waits."""

    clock: Callable[[], float]
    """Seconds that only grow."""
    sleep: Callable[[float], Awaitable[None]]
    say: Callable[[str], None]
    """A line for people."""


async def wait_for(hosts: Sequence[str], ask: Ask, limits: Limits, around: Surroundings) -> None:
    """Return when every host is ready. RefusedError with the others' names when the time is over."""
    start = around.clock()
    waiting: dict[str, Answer] = dict.fromkeys(hosts, Answer(state=State.NAMELESS, detail="not asked yet"))
    silent_since: dict[str, float] = {}
    pause, told = FIRST_PAUSE, start
    while waiting:
        began = around.clock()
        waiting = await _round(list(waiting), ask)
        if not waiting:
            break
        silent_since = {
            host: silent_since.get(host, began)
            for host, answer in waiting.items()
            if answer.state is State.SILENT
        }
        left = _left(limits, start, silent_since, began)
        if left <= 0:
            if not limits.knows_where and len(waiting) == len(hosts):
                if len(silent_since) == len(hosts):
                    seconds = around.clock() - start
                    around.say(f"no worker answered in {seconds:.0f} s; going on: {_some(waiting)}")
                    return
                if limits.whole is None:
                    left = LONGEST_PAUSE  # those that come later may answer, and tell where
            if left <= 0:
                raise RefusedError(_late(waiting, len(hosts), limits))
        if around.clock() - told >= REPORT_EVERY:
            told = around.clock()
            around.say(f"waiting for {len(waiting)} of {len(hosts)} workers: {_some(waiting)}")
        await around.sleep(min(pause, left))
        pause = min(pause * GROWTH, LONGEST_PAUSE)
    around.say(f"all {len(hosts)} workers are ready after {around.clock() - start:.1f} s")


def _left(limits: Limits, start: float, silent_since: Mapping[str, float], now: float) -> float:
    """Return the seconds until somebody is given up; endless where nobody will be."""
    if limits.whole is not None:
        return start + limits.whole - now
    return min(silent_since.values(), default=float("inf")) + limits.timeout - now


async def _round(hosts: Sequence[str], ask: Ask) -> dict[str, Answer]:
    """Ask every host once and return what those said that are not ready."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(host: str) -> Answer:
        async with gate:
            return await ask(host)

    answers = await asyncio.gather(*map(one, hosts))
    pairs = zip(hosts, answers, strict=True)
    return {host: answer for host, answer in pairs if answer.state is not State.READY}


def _some(waiting: dict[str, Answer]) -> str:
    texts = [f"{host.partition('.')[0]} {answer}" for host, answer in list(waiting.items())[:NAMED]]
    more = len(waiting) - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more else "")


def _late(waiting: dict[str, Answer], count: int, limits: Limits) -> list[Fault]:
    what = (
        f"{len(waiting)} of {count} workers are not ready; {limits.timeout:g} s without an answer is too long"
    )
    if limits.whole is not None:
        what = f"{len(waiting)} of {count} workers were not ready after {limits.whole:g} s"
    faults = [Fault(where="", what=what, hint="kubectl describe pod shows what a worker waits for")]
    return faults + [Fault(where=host, what=str(answer)) for host, answer in waiting.items()]
