"""Signals to a command that follows a job on a cluster."""

from __future__ import annotations

import asyncio
import signal

import pytest

from ringleader.cli.kubernetes.follow_job import Interrupts


@pytest.mark.parametrize("steps", range(4))
def test_a_signal_that_arrives_as_the_work_ends_is_not_lost(steps: int) -> None:
    """``steps``: turns of the loop between the two."""
    pressed = Interrupts()

    async def work() -> None:
        asyncio.get_running_loop().call_soon(later, steps)

    def later(left: int) -> None:
        if left:
            asyncio.get_running_loop().call_soon(later, left - 1)
        else:
            pressed.came(signal.SIGTERM)

    async def run() -> signal.Signals | None:
        first = await pressed.first(asyncio.ensure_future(work()))
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        return first or await asyncio.wait_for(pressed.first(never), 10)

    assert asyncio.run(run()) is signal.SIGTERM


def test_a_signal_before_the_end_comes_first() -> None:
    pressed = Interrupts()

    async def run() -> signal.Signals | None:
        pressed.came(signal.SIGINT)
        return await pressed.first(asyncio.ensure_future(asyncio.sleep(10)))

    assert asyncio.run(run()) is signal.SIGINT
