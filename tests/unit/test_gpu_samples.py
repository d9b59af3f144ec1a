"""What an agent sends of its host's GPUs: NVML answers, fails, hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ringleader.agents.gpu_samples import SILENCE_SECONDS, GpuSamples, Load

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


class Library:
    """The functions of nvml.h (CUDA 12.4) that `Load` calls, for two GPUs; ``lost``: those that answer 15."""

    def __init__(self, *lost: int, init: int = 0) -> None:
        def put(**values: Any) -> Callable[..., int]:
            def called(handle: Any, *more: Any) -> int:
                for name, value in values.items():
                    setattr(more[-1]._obj, name, value)
                return 15 if handle.value - 1 in lost else 0

            return called

        def count(found: Any) -> int:
            found._obj.value = 2
            return 0

        def handle_of(index: Any, handle: Any) -> int:
            handle._obj.value = index.value + 1
            return 0

        self.nvmlErrorString = lambda result: b"Driver/library version mismatch"
        self.nvmlInit_v2 = lambda: init
        self.nvmlDeviceGetCount_v2 = count
        self.nvmlDeviceGetHandleByIndex_v2 = handle_of
        self.nvmlDeviceGetUtilizationRates = put(gpu=90, memory=40)
        self.nvmlDeviceGetMemoryInfo = put(total=80 << 30, used=10 << 30)
        self.nvmlDeviceGetClockInfo = put(value=1980)
        self.nvmlDeviceGetPowerUsage = put(value=312_500)


def test_what_nvml_says_in_our_units() -> None:
    good = {"utilization": 0.9, "watts": 312.5, "hertz": 1.98e9, "memory": 10 << 30}
    assert Load(Library()).read() == {"0": good, "1": good}
    assert Load(Library(1)).read() == {"0": good, "1": dict.fromkeys(good)}


def test_a_library_that_does_not_answer_says_why() -> None:
    with pytest.raises(OSError, match="does not answer any more"):
        Load(Library(0, 1)).read()
    with pytest.raises(OSError, match="version mismatch"):
        Load(Library(init=18))
