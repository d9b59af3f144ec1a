"""Arrays one behind the other: what begins when, what is waited for, in which order they are done."""

from collections.abc import Iterator
from typing import Any

import pytest

from ringleader.engine.transports.pipeline import Pipeline, arrays_behind


class Recorder:
    """Steps that note when they begin and when they are waited for."""

    def __init__(self, steps: dict[int, int], depth: int) -> None:
        self.events: list[str] = []
        self.abandoned: list[Any] = []
        self._steps = steps
        self.pipeline = Pipeline(finish=self._finish, abandon=self.abandoned.extend, depth=depth)

    def _finish(self, requests: Any) -> None:
        self.events += [f"finish {name}" for name in requests]

    def steps(self, array: int) -> Iterator[list[str]]:
        for step in range(self._steps[array]):
            self.events.append(f"begin {array}.{step}")
            yield [f"{array}.{step}"]


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_arrays_are_done_in_order_and_in_time(depth: int, count: int) -> None:
    asked = 0
    done: list[int] = []
    recorder = Recorder({at: 1 + at % 2 for at in range(count)}, depth)

    def arrays() -> Iterator[int]:
        nonlocal asked
        for at in range(count):
            assert len(done) >= at - arrays_behind(depth) + 1
            asked += 1
            yield at

    for array in recorder.pipeline.run(arrays(), recorder.steps):
        done.append(array)
    assert done == list(range(count)) and asked == count
    for array in range(count):
        for step in range(1 + array % 2):
            begin, finish = (recorder.events.index(f"{word} {array}.{step}") for word in ("begin", "finish"))
            assert begin < finish


def test_a_step_is_waited_for_when_further_arrays_have_begun() -> None:
    recorder = Recorder(dict.fromkeys(range(4), 2), 2)
    assert list(recorder.pipeline.run(range(4), recorder.steps)) == [0, 1, 2, 3]
    assert recorder.events[:6] == [
        "begin 0.0", "begin 1.0", "begin 2.0", "finish 0.0", "begin 0.1", "begin 3.0",
    ]  # fmt: skip


def test_what_is_under_way_at_an_error_is_kept() -> None:
    recorder = Recorder({0: 2, 1: 2}, 3)

    def arrays() -> Iterator[int]:
        yield 0
        yield 1
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        list(recorder.pipeline.run(arrays(), recorder.steps))
    assert recorder.abandoned == ["0.0", "1.0"]
