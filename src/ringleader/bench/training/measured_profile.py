"""A training run → the profile that ``ringleader predict`` reads, as TOML. Pure."""

from __future__ import annotations

import json
import statistics

from ringleader.measurements.training import ALONE, RINGLEADER, UNCOUPLED, Arm, StepSplit, TrainingRun

FILE = "profile.toml"


def base_arm(run: TrainingRun) -> Arm | None:
    """Return the arm in which a rank had its machine as one rank has it; ``None``: it was not measured."""
    arm = run.arm(UNCOUPLED if run.ranks == 1 else ALONE)
    return arm if arm is not None and arm.rates and arm.split is not None else None


def profile_text(run: TrainingRun) -> str | None:
    """Return the profile; ``None`` where no rank was measured alone.

    Parts are those of a step of one rank; of it nothing is exchanged. The point is the run's own size, by
    Ringleader's arm.
    """
    base = base_arm(run)
    if base is None or base.split is None:
        return None
    lines = [
        f"# ringleader bench train, {run.model}, {run.precision}, {run.optimizer}, {run.data} data",
        f"name = {_text(run.name)}",
        f"batch = {run.batch}",
        f"unit = {_text(run.unit)}",
        *([] if run.layers else [f"gradient_bytes = {run.gradient_bytes}"]),
        "",
        *_parts(base.split),
    ]
    for layer in run.layers:
        lines += ["", "[[layers]]", f"name = {_text(layer.name)}", f"bytes = {layer.bytes}"]
        lines.append(f"backward_seconds = {_number(layer.backward_seconds)}")
    coupled = run.arm(RINGLEADER)
    if coupled is not None and coupled.rates and run.ranks > 1:
        lines += ["", "[[points]]", f"ranks = {run.ranks}"]
        lines += [f"per_host = {run.per_host}"] if run.per_host else []
        lines.append(f"rate = {_number(statistics.median(coupled.rates))}")
        shared = run.against(UNCOUPLED, ALONE)
        lines += [f"sharing = {_number(min(1.0, shared.ratio / run.ranks))}"] if shared else []
        if coupled.split is not None:
            lines.append(f"exchange_seconds = {_number(coupled.split.exchange)}")
            lines.append(f"waiting_seconds = {_number(coupled.split.waiting)}")
    return "\n".join(lines) + "\n"


def _parts(split: StepSplit) -> list[str]:
    """Return the table of parts. A profile has no ``other``: it counts as input."""
    parts = {
        "input": split.input + split.other,
        "forward": split.forward,
        "backward": split.backward + split.exchange + split.waiting,
        "optimizer": split.optimizer,
    }
    return ["[parts]", *(f"{name} = {_number(value)}" for name, value in parts.items())]


def _text(value: str) -> str:
    """Return a TOML basic string: JSON's escapes are among TOML's, but for what it leaves as it is."""
    return json.dumps("".join(c if c.isprintable() else "?" for c in value), ensure_ascii=False)


def _number(value: float) -> str:
    """Return a float; a time below what a profile may have is 0."""
    return f"{value:.9g}" if value >= 1e-9 else "0.0"
