"""What a step's time went into: told to the launcher about once a second, and shown in a timeline."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping

from ringleader.engine.engine_session import Session
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.engine.timeline import Stage

EVERY_SECONDS = 1.0
STEP = "STEP"
"""In a timeline: from the end of one optimizer step to the end of the next."""
BACKWARD = "BACKWARD"
"""In a timeline: from the first gradient of a backward pass to the begin of what the script waits for."""
EXCHANGE = "EXCHANGE"
"""In a timeline: what the script waits for, that is exchange that nothing else hides."""


def launchers_pipe() -> int | None:
    """Return the pipe on which the launcher hears of this rank, None where there is none."""
    text = os.environ.get("RINGLEADER_REPORT_FD", "")
    return int(text) if text.isdigit() else None


def report(pipe: int, message: Mapping[str, object]) -> bool:
    """Tell the launcher; return False where it is gone, which is not a training's business."""
    try:
        os.write(pipe, json.dumps(message).encode() + b"\n")
    except OSError:
        return False
    return True


class StepMetrics:
    """Counts steps and their time; tells the launcher cumulative numbers. Cheap and silent without one."""

    def __init__(self, session: Session) -> None:
        """Count in a session."""
        self.engine = session.engine
        self._pipe = launchers_pipe()
        self._timelines = session.timelines
        self._buckets = 0
        self._in_backward = False
        self._steps = 0
        self._start: float | None = None
        self._next = 0.0

    def set_buckets(self, count: int) -> None:
        """Note in how many buckets the gradients are exchanged."""
        self._buckets = count

    def gradient(self) -> None:
        """Note that backward brought a gradient."""
        if not self._in_backward:
            self._in_backward = True
            self._show(Stage.BEGIN, BACKWARD)

    def exchange(self) -> None:
        """Note that backward is over and the script waits for the exchange."""
        if self._in_backward:
            self._in_backward = False
            self._show(Stage.END, BACKWARD)
        self._show(Stage.BEGIN, EXCHANGE)

    def exchanged(self) -> None:
        """Note that the gradients are those of all ranks."""
        self._show(Stage.END, EXCHANGE)

    def step(self) -> None:
        """Note the end of a step."""
        self._in_backward = False
        self._show(Stage.BEGIN, STEP)
        if self._pipe is None:
            return
        now = time.perf_counter()
        if self._start is None:
            # The first step has no beginning that could be known here; time and steps count from its end.
            self._start = now
            self._before = (self.engine.times.exchange_seconds, self.engine.times.waiting_seconds)
            self._next = now + EVERY_SECONDS
            return
        self._steps += 1
        if now >= self._next:
            self._next = now + EVERY_SECONDS
            if not report(self._pipe, self._numbers(now)):
                self._pipe = None

    def _show(self, stage: Stage, phase: str) -> None:
        observer = self._timelines.observer if self._timelines is not None else None
        if observer is not None:
            observer.mark(stage, phase)

    def _numbers(self, now: float) -> dict[str, object]:
        message: dict[str, object] = {
            "kind": "step",
            "steps": self._steps,
            "step_seconds": now - (self._start or now),
            "exchange_seconds": self.engine.times.exchange_seconds - self._before[0],
            "waiting_seconds": self.engine.times.waiting_seconds - self._before[1],
        }
        if self._buckets:
            buckets = f"{self._buckets} bucket{'s' * (self._buckets > 1)}"
            message["transport"] = f"{self.engine.transport.name}, gradients in {buckets}"
        return message


class SessionMetrics:
    """Counts the steps of one optimizer, in the session that lives: anew in each."""

    def __init__(self) -> None:
        """Begin without a session."""
        self._metrics: StepMetrics | None = None

    def __call__(self) -> StepMetrics:
        """Return the counter of the session that lives."""
        session = PROCESS.get()
        if self._metrics is None or self._metrics.engine is not session.engine:
            self._metrics = StepMetrics(session)
        return self._metrics


session_metrics = SessionMetrics()
"""The counter that adapters share whose exchange has no optimizer object of its own."""
