"""Signals to a command that follows a job on a cluster."""

from __future__ import annotations

import asyncio
import gc
import signal
from pathlib import Path

import pytest

from ringleader.cli.follow_job import Interrupts
from ringleader.cli.interrupts import Interrupted
from ringleader.cli.kubernetes.connection import Connection, with_cluster
from ringleader.cli.options.kubernetes_options import ClusterOptions


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


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: none}}]
"""


def test_a_signal_in_one_of_several_tasks_is_all_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends the command; that nobody took it from the other tasks is no error to show."""
    config = tmp_path / "config"
    config.write_text(KUBECONFIG)

    async def interrupted() -> None:
        await asyncio.sleep(0)
        raise Interrupted(signal.SIGTERM)

    async def work(_connection: Connection) -> None:
        await asyncio.gather(interrupted(), asyncio.sleep(10))

    with pytest.raises(Interrupted):
        with_cluster(ClusterOptions(kubeconfig=str(config)), work)
    gc.collect()
    assert not caplog.records
