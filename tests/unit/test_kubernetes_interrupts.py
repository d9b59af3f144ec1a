"""Signals to a command that follows a job on a cluster."""

import asyncio
import gc
import io
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ringleader.cli.follow_job import Interrupts, JobTerminal, attend
from ringleader.cli.interrupts import Interrupted
from ringleader.cli.kubernetes.connection import Connection, with_cluster
from ringleader.cli.options.kubernetes_options import ClusterOptions, FollowOptions
from ringleader.kubernetes.jobs.job_state import JobView


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


class Submission:
    """A job of which nothing may be left."""

    cleans_up = True

    def __init__(self) -> None:
        self.is_removed = False

    async def send(self) -> JobView:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
        return JobView(name="train", namespace="team")

    async def remove(self) -> None:
        self.is_removed = True


def test_nothing_follows_a_job_any_more_once_a_signal_has_ended_that(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(KUBECONFIG)
    submission = Submission()

    async def work(connection: Connection) -> tuple[int, list[Any]]:
        before = asyncio.all_tasks()
        terminal = JobTerminal("train", stdout=io.BytesIO(), stderr=io.BytesIO(), is_tty=False)
        end = await attend(connection, submission, terminal, FollowOptions(), name="train")
        return end.exit_code, [task for task in asyncio.all_tasks() - before if "Follower" in repr(task)]

    code, left = with_cluster(ClusterOptions(kubeconfig=str(config)), work)
    assert (code, left) == (128 + signal.SIGTERM, []) and submission.is_removed
