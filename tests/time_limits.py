"""How long tests wait: each deadline grows with how slow and how busy the machine is."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = str(Path(__file__).parent)
VARIABLE = "RINGLEADER_TEST_TIME_FACTOR"
"""A factor that is used instead of the measured one, for example for a debugger or an emulator."""
REFERENCE_SECONDS = 0.1
"""What ``_loop`` takes on the machine for which deadlines are written, when nothing else runs."""
LARGEST = 20.0


def _loop() -> float:
    began = time.perf_counter()
    sum(number * number for number in range(1_500_000))
    return time.perf_counter() - began


_slowness = 0.0 if VARIABLE in os.environ else min(max(1.0, _loop() / REFERENCE_SECONDS), LARGEST)


def factor() -> float:
    """Return by how much deadlines are longer now than on an idle machine of today.

    A loop that is measured once shows a slow machine, the load average a busy one. What starts while a test
    waits is not seen, so a machine with as many busy processes as processors gets twice the time.
    """
    if VARIABLE in os.environ:
        return float(os.environ[VARIABLE])
    busy = 1.0 + os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return min(max(_slowness, busy), LARGEST)


def slowdown() -> float:
    """Return by how much the machine is slower now than an idle one: by a loop, or by its load."""
    busy = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return max(1.0, _loop() / REFERENCE_SECONDS, busy)


def patience(seconds: float) -> float:
    """Return a deadline in seconds, given what it'd be on an idle machine."""
    return seconds * factor()


def until(holds: Callable[[], Any], seconds: float = 30.0) -> Any:
    end = time.monotonic() + patience(seconds)
    while not (found := holds()):
        assert time.monotonic() < end, f"it does not hold after {seconds:g} s"
        time.sleep(0.01)
    return found


def stretch_subprocess_deadlines() -> None:
    """Have ``timeout=`` of ``subprocess`` mean an idle machine's seconds, wherever tests name it.

    Deadlines of the code under test stay as they are: what counts is in which file the call is.
    """
    for name in ("wait", "communicate"):
        setattr(subprocess.Popen, name, _stretched(getattr(subprocess.Popen, name)))


def _stretched(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: subprocess.Popen[Any], *words: Any, **options: Any) -> Any:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename == subprocess.__file__:
            if frame.f_code.co_name in ("wait", "communicate"):
                return method(self, *words, **options)  # already stretched by the call that leads here
            frame = frame.f_back
        if frame.f_code.co_filename.startswith(TESTS):
            if options.get("timeout") is not None:
                options["timeout"] = patience(options["timeout"])
            place = {"wait": 0, "communicate": 1}[method.__name__]
            if len(words) > place and words[place] is not None:
                words = (*words[:place], patience(words[place]), *words[place + 1 :])
        return method(self, *words, **options)

    return call
