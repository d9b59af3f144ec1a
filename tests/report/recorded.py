"""Records of runs, written by the real writer with a clock that stands where a test puts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ringleader.agents.training_progress import length_class
from ringleader.bench.run_file import read_any
from ringleader.launch.elastic_history import Event
from ringleader.launch.job_record import JobRecord
from ringleader.measurements.recorded_job import Begun, Ended, JobRun
from ringleader.scaling import Context, HostContext


class Story:
    """Tells a record what happens, and when."""

    def __init__(self, directory: Path, *hosts: str, command: str = "train.py") -> None:
        self.directory, self.now = directory, 100.0
        self.warnings: list[str] = []
        self.hosts = hosts or ("h1", "h1")
        self.record = JobRecord(str(directory), warn=self.warnings.append, clock=lambda: self.now)
        names = dict.fromkeys(self.hosts)
        self.context = Context(
            command=("python", command),
            date="2026-01-02T03:04:05+00:00",
            hosts=tuple(HostContext(name=name) for name in names),
        )
        again = ("ringleader", "run", "-n", "2", "python", command)
        self.record.write("run", Begun(schema=JobRun.schema, context=self.context, again=again))
        self._processes: dict[int, tuple[object, dict[str, Any]]] = {}

    def at(self, seconds: float) -> Story:
        self.now = 100.0 + seconds
        return self

    def start(self, generation: int = 0, commit: int = 0, *, fresh: bool = True) -> None:
        event = Event(
            at=0.0,
            kind="generation",
            who="2 ranks",
            generation=generation,
            commit=commit,
            size=len(self.hosts),
        )
        if fresh:
            self._processes = {}
        living = [process for process, _known in self._processes.values()]
        self.record.started(self.hosts, event if generation else None, living)

    def step(self, rank: int, seconds: float, *, steps: int = 1, samples: int = 0, **more: Any) -> None:
        """A rank has made steps of ``seconds`` each."""
        process, known = self._processes.setdefault(rank, (object(), {"steps": 0, "samples": 0}))
        is_first = not known["steps"]
        known["steps"] += steps
        known["samples"] += samples
        message = {"kind": "progress" if samples else "steps", **known, "seconds": self.now, **more}
        if not is_first:
            message["times"] = {str(length_class(seconds)): steps}
        self.record.report(process, rank, message)

    def waits(self, rank: int, step: float, waiting: float) -> None:
        """What the flight recorder knows of all steps until now."""
        process = self._processes[rank][0]
        message = {"kind": "own", "steps": 1, "step_seconds": step, "waiting_seconds": waiting}
        self.record.report(process, rank, message)

    def sample(self, host: str, **counters: Any) -> None:
        self.record.report(None, 0, {"kind": "host_sample", "host": host, **counters})

    def end(self, seconds: float, code: int = 0, reason: str = "", **more: Any) -> JobRun:
        self.at(seconds)
        self.record.flush()
        end = Ended(at=seconds, exit_code=code, reason=reason, context=self.context, **more)
        self.record.write("end", end)
        self.record.close()
        return self.read()

    def read(self) -> JobRun:
        run = read_any(self.directory)
        assert isinstance(run, JobRun)
        return run


def trained(directory: Path, *, seconds: int = 40, step: float = 0.25, slow: float = 1.0) -> JobRun:
    """Two ranks on two hosts; the second is slow in the second half; counters and a GPU on each host."""
    story = Story(directory, "h1", "h2")
    story.at(1.0).start()
    count = int((seconds - 2) / step)
    for number in range(1, count + 1):
        story.at(1.0 + number * step)
        for rank in (0, 1):
            factor = slow if rank and number > count / 2 else 1.0
            story.step(rank, step * factor, samples=32)
            if number % 20 == 0:
                story.waits(rank, number * step, number * step * (0.3 if rank == 0 else 0.02))
        if number % 4 == 0:
            for place, host in enumerate(("h1", "h2")):
                story.sample(
                    host,
                    interfaces={"eth0": [number * 10**6, number * 2 * 10**6], "lo": [5, 5]},
                    ports={"mlx5_0/1": [number * 10**8, number * 10**8 * (1 + place)]},
                    gpus={"0": {"utilization": 0.9, "watts": 300.0 + place, "hertz": 1.7e9, "memory": 2**34}},
                )
    return story.end(float(seconds))
