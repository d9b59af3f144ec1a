"""Groups of a broken generation are aborted: all at once, each in its own thread, until a deadline."""

import threading

import pytest
from tests.time_limits import until

from ringleader.adapters.util import env
from ringleader.engine.exceptions import is_transport_error
from ringleader.torch.c10d.connect import store_prefix
from ringleader.torch.c10d.group_watch import LOOK_SECONDS, GroupWatch

LONG = 30.0


class Group:
    """Notes what it is told in a list that groups share."""

    def __init__(self, name, steps, ends=lambda: None):
        self.name, self._steps, self._ends = name, steps, ends
        self.says = ""

    def refuse(self, why):
        self._steps.append(f"{self.name} refuses: {why}")

    def abort(self):
        self._steps.append(f"{self.name} aborts in {threading.current_thread().name}")
        self._ends()
        self._steps.append(f"{self.name} is over")

    def error(self):
        return self.says


class Job:
    """A watch, and what it did to its process."""

    def __init__(self, **more):
        self.why, self.said = "", list[str]()
        self.codes = list[int]()
        self.watch = GroupWatch(say=self.said.append, end_process=self.codes.append, **more)

    def add(self, *groups, generation=3):
        for group in groups:
            self.watch.add(group, generation=generation, why_broken=lambda: self.why)


def test_all_groups_of_a_broken_generation_are_refused_and_then_aborted_at_once():
    steps = []
    both = threading.Barrier(2, timeout=LONG)  # neither ends before the other has begun
    job = Job(abort_seconds=LONG, error_seconds=20 * LOOK_SECONDS)
    groups = [Group(name, steps, both.wait) for name in "ab"]
    groups[0].says = "NCCL says REMOTE_ERROR"  # which is the peer's end
    job.add(*groups)
    job.why = "rank 2 has ended"
    until(lambda: len(steps) == 6)
    assert steps[:2] == ["a refuses: rank 2 has ended", "b refuses: rank 2 has ended"]
    assert sorted(steps[2:4]) == ["a aborts in ringleader-abort", "b aborts in ringleader-abort"]
    job.watch.end(groups[0], None, seconds=LONG)
    assert steps.count("a is over") == 1, "not again when it is closed"
    assert not job.codes and not job.said and store_prefix(4, 1) == "ringleader/generation.4/set.1"


def test_a_rank_whose_abort_hangs_ends_itself_in_an_elastic_job():
    job = Job(abort_seconds=0.1)
    hangs = threading.Event()
    job.add(Group("nccl of all ranks", [], hangs.wait))
    job.why = "rank 2 has ended"
    until(lambda: job.codes)
    hangs.set()
    assert job.codes == [1]
    (said,) = job.said
    assert said == (
        "ringleader: nccl of all ranks did not give up what it does in 0.1 s (rank 2 has ended): this rank "
        "ends, to be replaced"
    )


def test_in_other_jobs_a_group_whose_abort_hangs_is_left_as_it_is():
    job, hangs = Job(abort_seconds=0.1), threading.Event()
    group = Group("nccl of all ranks", [], hangs.wait)
    job.add(group, generation=0)
    job.watch.end(group, None, seconds=LONG)
    hangs.set()
    assert not job.codes and "left as it is" in job.said[0]


def test_a_group_that_all_ranks_leave_is_shut_down_and_not_aborted():
    steps = []
    job = Job()
    group = Group("a", steps)
    job.add(group)
    job.watch.end(group, lambda: steps.append("shut down"), seconds=LONG)
    assert steps == ["shut down"]


@pytest.mark.parametrize("how", ["raises", "hangs", "a peer dies"])
def test_a_shutdown_that_fails_is_followed_by_the_abort(how):
    steps, hangs = [], threading.Event()
    job = Job(abort_seconds=LONG)
    group = Group("a", steps, hangs.set)
    job.add(group)

    def shut_down():
        if how == "raises":
            raise RuntimeError("no")
        if how == "a peer dies":
            job.why = "rank 2 has ended"
        hangs.wait(LONG)

    job.watch.end(group, shut_down, seconds=0.1 if how == "hangs" else LONG)
    assert "a is over" in steps and not job.codes


def test_an_error_that_only_the_backend_knows_ends_the_rank():
    job = Job(error_seconds=0.05)
    group = Group("nccl of all ranks", [])
    group.says = "NCCL says REMOTE_ERROR"
    job.add(group)
    until(lambda: job.codes)
    assert job.said[0].startswith("ringleader: nccl of all ranks: NCCL says REMOTE_ERROR: this rank ends")


def test_an_error_names_the_rank_that_is_known_a_moment_later():
    job = Job(abort_seconds=LONG)
    job.add(Group("a", []))
    timer = threading.Timer(0.05, setattr, (job, "why", "rank 2 has ended"))
    timer.start()
    assert job.watch.why_broken_soon() == "rank 2 has ended"
    assert GroupWatch().why_broken_soon() == ""


def test_which_errors_are_an_operations_failure():
    import torch

    lost = torch.distributed.DistBackendError("NCCL error: remote process exited")
    assert is_transport_error(lost) and is_transport_error(RuntimeError("Connection closed by peer"))
    assert not is_transport_error(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_transport_error(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert not is_transport_error(torch.AcceleratorError("CUDA error: unspecified launch failure"))


def test_variables_are_as_before_afterwards(monkeypatch):
    import os

    monkeypatch.setenv("RINGLEADER_TEST_A", "1")
    with env(RINGLEADER_TEST_A="2", RINGLEADER_TEST_B="3"):
        assert (os.environ["RINGLEADER_TEST_A"], os.environ["RINGLEADER_TEST_B"]) == ("2", "3")
    assert os.environ["RINGLEADER_TEST_A"] == "1" and "RINGLEADER_TEST_B" not in os.environ
