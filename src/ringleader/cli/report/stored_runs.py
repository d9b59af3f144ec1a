"""Stored runs read from the paths that a user named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ringleader.bench import run_file
from ringleader.errors import Fault, RequestError, collected
from ringleader.measurements.prediction_curve import PredictionCurve
from ringleader.measurements.run_kinds import AnyRun
from ringleader.predict.speedup_curve import speedup_curve
from ringleader.scaling import Run


def read_runs(paths: Sequence[str]) -> list[AnyRun]:
    """Read every run, those of one name told apart by their paths; RequestError with all faults."""
    runs: list[AnyRun] = []
    faults: list[Fault] = []
    for path in paths:
        with collected(faults):
            runs.append(run_file.read_any(Path(path)))
    if faults:
        raise RequestError(faults)
    names = Counter(run.name for run in runs)
    return [
        run if names[run.name] == 1 else replace(run, name=f"{run.name} ({path})")
        for run, path in zip(runs, paths, strict=True)
    ]


def predictions_of(runs: Sequence[AnyRun]) -> dict[int, PredictionCurve]:
    """Return index → predicted speed-ups of the scaling runs that tell enough for it."""
    found = {index: speedup_curve(run) for index, run in enumerate(runs) if isinstance(run, Run)}
    return {index: curve for index, curve in found.items() if curve.sizes}
