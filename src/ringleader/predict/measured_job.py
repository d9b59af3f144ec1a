"""What was measured of a job, read from a profile (TOML or JSON) or from a run of `ringleader scale`. Pure.

name = "my model"            batch = 64          unit = "images"
step_seconds = 0.29          # or [parts] with input, forward, backward, optimizer
gradient_bytes = 102228128   # or [[layers]], from the first: name, bytes, backward_seconds
[[points]]                   # optional: ranks, and rate (all ranks) or step_seconds; per_host, sharing,
                             # exchange_seconds and waiting_seconds of a step

All faults of a file are reported at once.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ringleader.errors import Fault, RequestError
from ringleader.predict.gpus import Gpu
from ringleader.predict.models import Model
from ringleader.predict.profile import Profile, Segment, even_segments, model_segments
from ringleader.predict.step_model import Setup, division_of
from ringleader.predict.strategies import state_bytes
from ringleader.predict.transformers import Transformer, activation_bytes, profile_of
from ringleader.scaling import Point, Run

_PARTS = ("input", "forward", "backward", "optimizer")
_KEYS = ("name", "batch", "unit", "step_seconds", "parts", "gradient_bytes", "layers", "points")
MOST, SMALLEST = 1e15, 1e-12
"""No number of seconds, bytes or samples is larger; none but 0 is smaller."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One measured size."""

    ranks: int
    rate: float
    """Samples per second over all ranks."""
    micro_steps: int = 1
    """Backward passes of an update at this size."""
    per_host: int = 0
    """Ranks on each host; 0: as the setup has it."""
    sharing: float = 1.0
    """Rate of its ranks where they exchange nothing, in parts of one rank's."""
    servers: int = 0
    """Parameter servers at this size; 0: as the setup has it."""
    exposed: float | None = None
    """Part of a step in which bytes were exchanged and nothing was computed; ``None``: not measured."""
    waiting: float | None = None
    """Part of a step in which ranks waited for others; ``None``: not measured."""


@dataclass(frozen=True, kw_only=True)
class OnGpu:
    """A transformer on a GPU: another division of its work is another profile."""

    model: Transformer
    gpu: Gpu
    mfu: float | None = None
    """Part of the peak that the model reaches; ``None``: as published rows tell."""

    def profile(self, setup: Setup, ranks: int) -> Profile:
        """Return a step of one of ``ranks`` ranks."""
        division = division_of(ranks, setup)
        return profile_of(
            self.model, self.gpu, setup.batch, division, recompute=setup.recompute, mfu=self.mfu
        )

    def memory(self, setup: Setup, ranks: int) -> float:
        """Return the bytes that one of ``ranks`` ranks needs, but for the framework's own."""
        division = division_of(ranks, setup)
        state = state_bytes(self.profile(setup, ranks), division)
        return sum(state.values()) + activation_bytes(
            self.model, setup.batch, division, setup.micro_steps, recompute=setup.recompute
        )


@dataclass(frozen=True, kw_only=True)
class MeasuredJob:
    """What is known of a job: one rank's step, and other sizes where they were measured."""

    profile: Profile
    points: tuple[Observation, ...] = ()
    """The first is of one rank, where there are any."""
    sharing: float = 1.0
    """Rate of a rank on a full host without exchange, in parts of one rank's alone; 1 where not measured."""
    per_host: int = 0
    """Ranks on each host in the largest measured point; 0: not known."""
    on_gpu: OnGpu | None = None
    """Where nothing was measured, and the profile follows from a model's shape and a GPU's numbers."""


def from_document(document: object, source: str, layers_of: Model | None = None) -> MeasuredJob:
    """Return what a document says. RequestError names ``source`` and every wrong field.

    ``layers_of``: a model that says how gradients and backward are spread, in place of what the file says.
    """
    if not isinstance(document, Mapping):
        raise RequestError("is not a profile: a table of names and values is needed", where=source)
    table = _Table(document, f"{source}: ", [])
    for key in document:
        if key not in _KEYS:
            table.fault(str(key), "is not a field of a profile", f"fields: {', '.join(_KEYS)}")
    batch = table.number("batch", required=True) or 1.0
    before, backward, after = _times(table)
    layers = [
        [layer.number(name, required=True, zero=True) or 0.0 for name in ("bytes", "backward_seconds")]
        for layer in table.tables("layers")
    ]
    size = table.number("gradient_bytes")
    if layers_of is None and not layers and size is None and "gradient_bytes" not in document:
        hint = "gradient_bytes, or a table of layers, or --model NAME"
        table.fault("gradient_bytes", "is missing: nothing says how many bytes are exchanged", hint)
    points = [_point(point, batch) for point in table.tables("points")]
    name, unit = table.text("name", source), table.text("unit", "samples")
    if table.faults:
        raise RequestError(table.faults)
    profile = Profile(
        name=name,
        batch=batch,
        before=before,
        segments=_segments(layers, size, backward, layers_of),
        after=after,
        unit=unit,
        source=source,
    )
    measured = [Observation(ranks=1, rate=batch / profile.step_seconds)] if points else []
    measured += [point for point in points if point.ranks != 1]
    largest = max(measured, key=lambda one: one.ranks, default=None)
    return MeasuredJob(
        profile=profile,
        points=tuple(measured),
        sharing=1.0 if largest is None else largest.sharing,
        per_host=max((point.per_host for point in measured), default=0),
    )


def _segments(
    layers: Sequence[Sequence[float]], size: float | None, backward: float, model: Model | None
) -> tuple[Segment, ...]:
    """Return the segments of a backward pass of ``backward`` seconds, from what is known best.

    ``layers``: bytes and seconds of each. They say how backward is spread, the step how long it is.
    """
    if model is not None:
        return model_segments(model, backward)
    if not layers:
        return even_segments(int(size or 0), backward)
    told = sum(seconds for _size, seconds in layers)
    scale = backward / told if told else 0.0
    return tuple(Segment(size=int(one), backward=seconds * scale) for one, seconds in layers)


class _Table:
    """Takes values out of a table of the document, and keeps what is wrong with them."""

    def __init__(self, values: Mapping[str, Any], place: str, faults: list[Fault]) -> None:
        self.values, self.place, self.faults = values, place, faults

    def fault(self, key: str, what: str, hint: str = "") -> None:
        self.faults.append(Fault(where=f"{self.place}{key}", what=what, hint=hint))

    def number(
        self, key: str, *, required: bool = False, zero: bool = False, whole: bool = False
    ) -> float | None:
        """Return a number above 0 (``zero``: or 0), else ``None``; anything else is a fault."""
        if key not in self.values:
            if required:
                self.fault(key, "is missing")
            return None
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            self.fault(key, f"{value!r:.40} is not a {'whole ' if whole else ''}number")
            return None
        is_right = SMALLEST <= value <= MOST or (zero and value == 0)  # false for nan, too
        if not is_right:
            least = f"0, or from {SMALLEST:g}" if zero else f"from {SMALLEST:g}"
            self.fault(key, f"{value!r:.40} is not {least} to {MOST:g}")
            return None
        return value if whole else float(value)

    def text(self, key: str, otherwise: str) -> str:
        """Return a text as it can be printed on one line."""
        value = self.values.get(key, otherwise)
        if not isinstance(value, str):
            self.fault(key, f"{value!r:.40} is not text")
            return otherwise
        return "".join(letter if letter.isprintable() else "?" for letter in value)[:200]

    def tables(self, key: str) -> list[_Table]:
        """Return a list of tables; what is not one is a fault."""
        found = self.values.get(key)
        if found is None:
            return []
        if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
            self.fault(key, "is not a list of tables")
            return []
        return [_Table(item, f"{self.place}{key}[{i}].", self.faults) for i, item in enumerate(found)]


def _times(table: _Table) -> tuple[float, float, float]:
    """Return the seconds before, of and after backward."""
    step = table.number("step_seconds")
    parts = table.values.get("parts")
    if parts is None:
        if step is None and "step_seconds" not in table.values:
            table.fault("step_seconds", "is missing", "seconds of a step of one rank, or [parts]")
        known = step or 1.0
        return known / 3, known * 2 / 3, 0.0  # backward computes two products where forward computes one
    if not isinstance(parts, Mapping):
        table.fault("parts", "is not a table", f"[parts] with {', '.join(_PARTS)}")
        return 0.0, 0.0, 0.0
    inner = _Table(parts, f"{table.place}parts.", table.faults)
    for key in parts:
        if key not in _PARTS:
            inner.fault(str(key), "is not a part of a step", f"parts: {', '.join(_PARTS)}")
    took = {part: inner.number(part, zero=True, required=part == "backward") or 0.0 for part in _PARTS}
    total = sum(took.values())
    if step is not None and total > 0 and abs(total - step) > 0.05 * step:
        table.fault("parts", f"add up to {total:g} s, and step_seconds is {step:g}")
    if total == 0 and not table.faults:
        table.fault("parts", "take no time")
    return took["input"] + took["forward"], took["backward"], took["optimizer"]


def _point(table: _Table, batch: float) -> Observation:
    ranks = int(table.number("ranks", required=True, whole=True) or 1)
    per_host = int(table.number("per_host", whole=True) or 0)
    rate, step = table.number("rate"), table.number("step_seconds")
    if rate is None and step is None and not {"rate", "step_seconds"} & set(table.values):
        table.fault("rate", "is missing", "samples per second of all ranks, or step_seconds")
    if per_host and ranks > per_host and ranks % per_host:
        table.fault("per_host", f"{ranks} ranks do not fill hosts of {per_host}")
    sharing = table.number("sharing") or 1.0
    if sharing > 1:
        hint = "rate of a rank that exchanges nothing beside the others"
        table.fault("sharing", f"{sharing:g} is more than 1, one rank alone", hint)
    rate = rate or ranks * batch / (step or 1.0)
    parts = [table.number(f"{part}_seconds", zero=True) for part in ("exchange", "waiting")]
    exposed, waiting = (None if part is None else part * rate / (ranks * batch) for part in parts)
    return Observation(
        ranks=ranks, rate=rate, per_host=per_host, sharing=sharing, exposed=exposed, waiting=waiting
    )


def from_run(
    run: Run, source: str, *, size: float | None, batch: float | None, layers_of: Model | None
) -> MeasuredJob:
    """Return what a run tells. RequestError with all that it lacks.

    ``size``: bytes of the gradients; ``batch``: samples of a step, where the run did not tell its steps.
    """
    one = next((point for point in run.points if point.ranks == 1 and point.samples), None)
    steps = [sample.step_seconds for sample in one.samples if sample.step_seconds] if one else []
    lacks = (
        (one is None, "has no sample of one rank", "ringleader scale --grid 1x1,…"),
        (
            run.strong,
            "is strong scaling: a rank's batch is not the same at every size",
            "measure it without --strong",
        ),
        (
            layers_of is None and size is None,
            "does not say how many bytes are exchanged",
            "--gradients BYTES, or --model NAME",
        ),
        (
            one is not None and not steps and batch is None,
            "does not tell the time of a step",
            "--batch N: samples of a step of one rank",
        ),
    )
    faults = [Fault(where=source, what=what, hint=hint) for is_lacking, what, hint in lacks if is_lacking]
    if faults or one is None:
        raise RequestError(faults)
    alone = statistics.median(sample.rate for sample in one.samples)
    step = statistics.median(steps) if steps else (batch or 0.0) / alone
    profile = Profile(
        name=run.name,
        batch=alone * step,
        before=step / 3,
        segments=_segments((), size, 2 / 3 * step, layers_of),
        unit=run.unit,
        source=source,
    )
    others = [point for point in run.points if point.ranks > 1 and point.samples]
    points = [Observation(ranks=1, rate=alone, per_host=1)] if others else []
    points += [_measured_point(point, alone) for point in others]
    last = max(others, key=lambda point: point.ranks, default=None)
    return MeasuredJob(
        profile=profile,
        points=tuple(points),
        sharing=_sharing(last, alone) if last else 1.0,
        per_host=last.slots if last else 0,
    )


def _measured_point(point: Point, alone: float) -> Observation:
    told = [
        (s.exchange_seconds / s.step_seconds, s.waiting_seconds / s.step_seconds)
        for s in point.samples
        if s.step_seconds and s.exchange_seconds is not None and s.waiting_seconds is not None
    ]
    return Observation(
        ranks=point.ranks,
        rate=statistics.median(sample.rate for sample in point.samples),
        per_host=point.slots,
        sharing=_sharing(point, alone),
        exposed=statistics.median(exchange for exchange, _waiting in told) if told else None,
        waiting=statistics.median(waiting for _exchange, waiting in told) if told else None,
    )


def _sharing(point: Point, alone: float) -> float:
    """Return what independent ranks reach in parts of one rank's rate; 1 where they were not measured."""
    if not point.uncoupled:
        return 1.0
    return min(1.0, statistics.median(sample.rate for sample in point.uncoupled) / point.ranks / alone)
