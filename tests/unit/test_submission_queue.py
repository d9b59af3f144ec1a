"""The queue of one rank's operations: who waits, names that are pending, and its end."""

import threading
from typing import Any

import pytest

from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.operations import Signature, Work, signature_digest
from ringleader.engine.submission_queue import SubmissionQueue

SIGNATURE = Signature(kind="allreduce", dtype="float32", shape=(3,))


def work(name: str) -> Work:
    digest = signature_digest(SIGNATURE)
    return Work(SIGNATURE, digest, name=name, serial=0, array=None, out=None)


def queue_of(rounds: list[bool], *, error: Exception | None = None) -> SubmissionQueue:
    """A queue whose rounds do all that is pending, or raise an error."""

    def run(blocked: bool) -> None:
        rounds.append(blocked)
        if error is not None:
            raise error
        for one in list(queue.works.values()):
            queue.finish(one, None)

    queue: SubmissionQueue = SubmissionQueue(run, devices=None, clock=lambda: 0.0, threads=False)
    return queue


def test_a_thread_waits_only_while_it_waits() -> None:
    """The progress thread stays out of the way of threads that wait."""
    rounds: list[bool] = []
    queue = queue_of(rounds)
    seen: list[Any] = []
    run_round = queue._run_round
    queue._run_round = lambda blocked: (seen.append(list(queue.waiting_threads)), run_round(blocked))[1]
    queue.run(work("a"))
    assert seen == [[threading.get_ident()]] and rounds == [True]
    assert queue.waiting_threads == [] and not queue.works


def test_a_wait_that_fails_is_over_too() -> None:
    queue = queue_of([], error=HorovodInternalError("a peer ended"))
    with pytest.raises(HorovodInternalError, match="a peer ended"):
        queue.run(work("a"))
    assert queue.waiting_threads == []


def test_of_several_works_none_is_taken_where_a_name_is_pending() -> None:
    queue = queue_of([])
    first = work("a")
    queue.submit(first)
    with pytest.raises(ValueError, match=r"'allreduce\.a' while an operation of that name is still pending"):
        queue.submit_all([work("b"), work("a")])
    assert list(queue.works.values()) == [first]


def test_after_its_end_everything_fails_with_the_reason() -> None:
    queue = queue_of([])
    pending = work("a")
    queue.submit(pending)
    queue.break_off("a rank has ended")
    for call in (lambda: queue.wait(pending), lambda: queue.submit(work("b"))):
        with pytest.raises(HorovodInternalError, match="a rank has ended"):
            call()
    assert not queue.works and queue.waiting_threads == []
