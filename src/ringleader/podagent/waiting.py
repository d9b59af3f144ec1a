"""Wait until every worker answers: rounds of questions with growing pauses, and a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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
    """How long to wait."""

    timeout: float
    """Seconds until those that do not answer are given up."""
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
    pause, told = FIRST_PAUSE, start
    while waiting:
        left = limits.timeout - (around.clock() - start)
        waiting = await _round(list(waiting), ask)
        now = around.clock()
        if not waiting:
            break
        if left <= 0:
            all_quiet = all(one.state is State.SILENT for one in waiting.values())
            if not limits.knows_where and all_quiet and len(waiting) == len(hosts):
                around.say(f"no worker answered in {limits.timeout:g} s; going on: {_some(waiting)}")
                return
            raise RefusedError(_late(waiting, len(hosts), limits.timeout))
        if now - told >= REPORT_EVERY:
            told = now
            around.say(f"waiting for {len(waiting)} of {len(hosts)} workers: {_some(waiting)}")
        await around.sleep(min(pause, max(0.0, left)))
        pause = min(pause * GROWTH, LONGEST_PAUSE)
    around.say(f"all {len(hosts)} workers are ready after {around.clock() - start:.1f} s")


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


def _late(waiting: dict[str, Answer], count: int, timeout: float) -> list[Fault]:
    what = f"{len(waiting)} of {count} workers were not ready after {timeout:g} s"
    faults = [Fault(where="", what=what, hint="kubectl describe pod shows what a worker waits for")]
    return faults + [Fault(where=host, what=str(answer)) for host, answer in waiting.items()]
