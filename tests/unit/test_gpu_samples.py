"""What an agent sends of its host's GPUs: NVML answers, fails, hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ringleader.agents.gpu_samples import SILENCE_SECONDS, GpuSamples

ONE = {"0": {"utilization": 0.5, "watts": 100.0, "hertz": 1e9, "memory": 7}}


class Nvml:
    """Answers what the test puts there; each answer releases `answered`."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.opened = 0
        self.go_on = threading.Event()

    def __call__(self) -> Nvml:
        self.opened += 1
        return self

    def read(self) -> Any:
        answer = self.answers.pop(0)
        if answer == "hangs":
            assert self.go_on.wait(30)
            return ONE
        if isinstance(answer, Exception):
            raise answer
        return answer


def taken(nvml: Nvml, times: int, clock: Callable[[], float] = lambda: 0.0) -> list[dict[str, Any]]:
    """Take samples, each after the thread has answered the one before."""
    samples, found = GpuSamples(nvml, clock), []
    for _ in range(times):
        found.append(samples.take())
        for _ in range(2000):
            if samples._asked_at is None:
                break
            threading.Event().wait(0.005)
    return found


def test_a_sample_is_what_was_asked_for_by_the_one_before() -> None:
    nvml = Nvml(ONE, ONE, ONE)
    assert taken(nvml, 3) == [{}, {"gpus": ONE}, {"gpus": ONE}]
    assert nvml.opened == 1


def test_what_fails_is_said_once_and_tried_again() -> None:
    lost = OSError("GPU is lost")
    nvml = Nvml(ONE, lost, lost, lost, ONE, ONE)
    fault = {"fault": "GPUs: GPU is lost"}
    assert taken(nvml, 6) == [{}, {"gpus": ONE}, fault, {}, {}, {"gpus": ONE}]
    assert nvml.opened == 4


def test_a_library_that_hangs_holds_up_nobody() -> None:
    now = 0.0
    nvml = Nvml(ONE, "hangs", ONE)
    samples = GpuSamples(nvml, lambda: now)
    found = []
    for second in range(9):
        now = float(second)
        found.append(samples.take())
        for _ in range(2000 if second == 0 else 0):
            if samples._asked_at is None:
                break
            threading.Event().wait(0.005)
    nvml.go_on.set()
    fault = {"fault": f"GPUs: NVML has not answered for {SILENCE_SECONDS:g} s"}
    assert found == [{}, {"gpus": ONE}, {}, {}, {}, {}, {}, fault, {}]
