"""What a step's time went into: told to the launcher about once a second, and shown in a timeline."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping

from ringleader.engine.engine import Engine
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.engine.timeline import Stage, Timelines

EVERY_SECONDS = 1.0
STEP = "STEP"
"""In a timeline: from the end of one optimizer step to the end of the next."""
BACKWARD = "BACKWARD"
"""In a timeline: from the first gradient of a backward pass to the begin of what the script waits for."""
EXCHANGE = "EXCHANGE"
"""In a timeline: what the script waits for, that is exchange that nothing else hides."""


class StepMetrics:
    """Counts steps and their time; writes cumulative numbers to the launcher's pipe, if there is one."""

    def __init__(
        self,
        engine: Engine,
        descriptor: int | None,
        clock: Callable[[], float] = time.perf_counter,
        timelines: Timelines | None = None,
    ) -> None:
        """Take the pipe; None makes every call cheap and silent."""
        self.engine = engine
        self._descriptor = descriptor
        self._clock = clock
        self._timelines = timelines
        self._buckets = 0
        self._in_backward = False
        self._steps = 0
        self._start: float | None = None
        self._next = 0.0

    @classmethod
    def from_environment(
        cls, engine: Engine, environ: Mapping[str, str] = os.environ, timelines: Timelines | None = None
    ) -> StepMetrics:
        """Find the pipe in the environment."""
        text = environ.get("RINGLEADER_REPORT_FD", "")
        return cls(engine, int(text) if text.isdigit() else None, timelines=timelines)

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
        if self._descriptor is None:
            return
        now = self._clock()
        if self._start is None:
            # The first step has no beginning that could be known here; time and steps count from its end.
            self._start = now
            self._before = (self.engine.times.exchange_seconds, self.engine.times.waiting_seconds)
            self._next = now + EVERY_SECONDS
            return
        self._steps += 1
        if now >= self._next:
            self._next = now + EVERY_SECONDS
            self._write(now)

    def _show(self, stage: Stage, phase: str) -> None:
        observer = self._timelines.observer if self._timelines is not None else None
        if observer is not None:
            observer.mark(stage, phase)

    def _write(self, now: float) -> None:
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
        try:
            os.write(self._descriptor or 0, json.dumps(message).encode() + b"\n")
        except OSError:
            self._descriptor = None  # the launcher is gone; training is not its business


class SessionMetrics:
    """Counts the steps of one optimizer, in the session that lives: anew in each."""

    def __init__(self) -> None:
        """Begin without a session."""
        self._metrics: StepMetrics | None = None

    def __call__(self) -> StepMetrics:
        """Return the counter of the session that lives."""
        session = PROCESS.get()
        if self._metrics is None or self._metrics.engine is not session.engine:
            self._metrics = StepMetrics.from_environment(session.engine, timelines=session.timelines)
        return self._metrics


session_metrics = SessionMetrics()
"""The counter that adapters share whose exchange has no optimizer object of its own."""
