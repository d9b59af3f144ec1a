"""Records some optimizer steps of a rank with PyTorch's profiler, for ``ringleader run --profile``.

``python_startup/sitecustomize.py`` loads this file by its path where the launcher asks for a profile, and
`script_watch` counts the steps. The trace is written into the job's directory, from where the rank's agent
sends it to the launcher. None of its errors reaches the script: they are reported.
"""

from __future__ import annotations

import atexit
import gzip
import json
import os
import sys
from collections.abc import Callable
from typing import Any

EXCHANGE = "ringleader:all_reduce"
"""What our own optimizer's wait for gradients is called in a trace."""
LAST = "ringleader_last_step"
"""Name of its number in a trace."""


class Recorder:
    """Records steps ``first`` to ``last`` of one rank, which are known once the step before has ended."""

    def __init__(self, first: int, last: int, path: str, report: Callable[..., object]) -> None:
        """``path``: of the trace. ``report`` writes a report to the launcher."""
        self._first, self._last, self._path, self._report = first, last, path, report
        self._pid = os.getpid()
        self._profiler: Any = None
        self._is_recording = self._is_over = self._has_undone = False
        self._steps = 0
        self._marks: list[Any] = []
        """Annotations that have begun: that of the step, and in it that of our exchange."""
        atexit.register(self.end)
        report("profile", state="counts")

    def at(self, steps: int) -> None:
        """Note that this many steps have been made, the last one now."""
        self._steps = steps
        if not self._is_over and steps >= self._first - 2 and os.getpid() == self._pid:
            self._guarded(self._advance)

    def end(self, why: str = "") -> None:
        """Write what was recorded, if the script ends before the last step has, or for another reason."""
        if not self._is_over and os.getpid() == self._pid:
            what = f"made {self._steps} steps" if self._steps else "made no step of an optimizer"
            self._guarded(lambda: self._finish(why or what))

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._is_over = True
            self._report("profile", state="failed", why=f"{type(error).__name__}: {error}"[:300])

    def _advance(self) -> None:
        if "torch" not in sys.modules:
            self._is_over = True
            why = "the script has not imported torch, whose profiler records the steps"
            self._report("profile", state="none", why=why)
            return
        if self._profiler is None:
            self._prepare()
        if self._steps < self._first - 1:
            return
        if not self._is_recording:
            self._start()
        self._unmark()
        if self._steps >= self._last:
            self._finish("")
        else:
            self._mark(f"ProfilerStep#{self._steps + 1}")

    def _prepare(self) -> None:
        """Make the profiler a step before it starts: preparing takes time that belongs to no step."""
        profiler = sys.modules["torch"].profiler
        if getattr(sys.modules["torch"].autograd.profiler, "_is_profiler_enabled", False):
            raise RuntimeError("the script's own profiler is running")
        self._profiler = profiler.profile()
        self._profiler.prepare_trace()

    def _start(self) -> None:
        torch = sys.modules["torch"]
        self._profiler.start_trace()
        self._is_recording = self._has_undone = True
        watched = sys.modules["ringleader_script_watch"]
        profilers = torch.autograd.profiler
        watched.around(profilers.profile, "_prepare_trace", before=self._give_way)
        watched.around(profilers.profile, "_start_trace", before=self._prepare_again)
        for name in ("emit_nvtx", "emit_itt"):
            if hasattr(profilers, name):
                watched.around(getattr(profilers, name), "__enter__", before=self._give_way)
        metrics = sys.modules.get("ringleader.adapters.step_metrics")
        if metrics is not None:
            watched.around(metrics.StepMetrics, "exchange", after=lambda *_: self._mark(EXCHANGE))
            watched.around(metrics.StepMetrics, "exchanged", before=lambda *_: self._unmark(1))
        if not torch.distributed.is_available() or not torch.distributed.is_initialized():
            known = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
            self._profiler.add_metadata_json("distributedInfo", json.dumps(known))

    def _give_way(self, *_: object) -> None:
        """The script starts its own profiler: two cannot run in one process, and its own has precedence."""
        self.end("the script started its own profiler")
        self._has_undone = False

    def _prepare_again(self, other: Any) -> None:
        """The script's profiler starts: ours undid what its schedule's warm-up prepared before."""
        if self._has_undone and os.getpid() == self._pid:
            other._prepare_trace()

    def _mark(self, name: str) -> None:
        if self._is_recording:
            mark = sys.modules["torch"].profiler.record_function(name)
            mark.__enter__()
            self._marks.append(mark)

    def _unmark(self, least: int = 0) -> None:
        """End annotations, the innermost first, until ``least`` are left."""
        while len(self._marks) > least:
            self._marks.pop().__exit__(None, None, None)

    def _finish(self, why: str) -> None:
        """Stop, and write the trace. ``why``: it ends earlier than was asked for; empty: it does not."""
        self._is_over = True
        self._unmark()
        last = min(self._steps, self._last)
        if self._is_recording:
            self._is_recording = False
            # The mark of a step that has not ended is in the trace as well.
            self._profiler.add_metadata_json(LAST, json.dumps(last))
            self._profiler.stop_trace()
        if last < self._first:
            self._report("profile", state="none", why=f"{why}, and step {self._first} is the first to record")
            return
        text = f"{self._path}.{os.getpid()}"
        try:
            self._profiler.export_chrome_trace(text)
            # The library's own compression takes ten times as long, and other ranks wait for this one.
            with open(text, "rb") as plain, gzip.open(f"{text}.gz", "wb", compresslevel=1) as packed:  # noqa: PTH123
                while piece := plain.read(1 << 20):
                    packed.write(piece)
            os.replace(f"{text}.gz", self._path)  # noqa: PTH105
        finally:
            for left in (text, f"{text}.gz"):
                if os.path.exists(left):  # noqa: PTH110
                    os.unlink(left)  # noqa: PTH108
        self._profiler = None
        self._report("profile", state="recorded", first=self._first, last=last, why=why)


def attach(watch: Any, wanted: str, path: str) -> None:
    """Have a process's watch (`script_watch.Watch`) drive a recorder. ``wanted``: ``20:40``."""
    first, _, last = wanted.partition(":")
    recorder = Recorder(int(first), int(last), path, watch.report)
    note = watch.steps.at

    def at(steps: int, by: str) -> None:
        note(steps, by)
        recorder.at(steps)

    watch.steps.at = at
