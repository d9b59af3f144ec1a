"""What of Ringleader has run on a GPU, by the stored results of `make gpu`; ``gpu_record.json`` beside it.

``scripts/gpu_record.py`` writes that file from ``benchmarks/results/gpu-*.json``.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def lines() -> list[str]:
    """Return what has run on a GPU and what has not, for ``ringleader --version --verbose``."""
    return lines_of(json.loads(files("ringleader").joinpath("gpu_record.json").read_text("utf-8")))


def lines_of(parts: list[dict[str, Any]]) -> list[str]:
    """Return the same of a record: for each result, the parts of `make gpu` that ended so."""
    never = [part for part in parts if not part["runs"]]
    found = [f"On a GPU, {len(parts) - len(never)} of {len(parts)} parts of `make gpu` have run:"]
    by_run: dict[str, list[str]] = {}
    for part in parts:
        for run in part["runs"]:
            what = f"{run['result']} on {run['gpu']} with PyTorch {run['torch']}, {run['date']}"
            by_run.setdefault(what, []).append(part["part"])
    found += [f"  {what}: {', '.join(names)}" for what, names in sorted(by_run.items(), reverse=True)]
    return [*found, *([f"  never run: {', '.join(part['part'] for part in never)}"] if never else [])]
