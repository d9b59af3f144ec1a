"""A profile as JSON or TOML has it → values; all faults at once. Pure.

name = "my model"            batch = 64          unit = "images"
step_seconds = 0.29          # or [parts] with input, forward, backward, optimizer
gradient_bytes = 102228128   # or [[layers]], from the first: name, bytes, backward_seconds
[[points]]                   # optional: ranks, and rate (all ranks) or step_seconds; per_host, sharing,
                             # exchange_seconds and waiting_seconds of a step
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringleader.errors import Fault, RequestError
from ringleader.predict.models import Model
from ringleader.predict.observation import Observation
from ringleader.predict.profile import FLOAT32, Profile, Segment, even_segments

_PARTS = ("input", "forward", "backward", "optimizer")
_KEYS = ("name", "batch", "unit", "step_seconds", "parts", "gradient_bytes", "layers", "points")
MOST, SMALLEST = 1e15, 1e-12
"""No number of seconds, bytes or samples is larger; none but 0 is smaller."""


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


def from_document(document: object, source: str, layers_of: Model | None = None) -> MeasuredJob:
    """Return what a document says. RequestError names ``source`` and every wrong field.

    ``layers_of``: a model that says how gradients and backward are spread, in place of what the file says.
    """
    if not isinstance(document, Mapping):
        raise RequestError(
            Fault(where=source, what="is not a profile: a table of names and values is needed")
        )
    reader = _Reader(source)
    for key in document:
        if key not in _KEYS:
            reader.fault(str(key), "is not a field of a profile", hint=f"fields: {', '.join(_KEYS)}")
    batch = reader.number(document, "batch", required=True)
    times = _times(reader, document)
    layers = _layers(reader, document.get("layers"))
    size = reader.number(document, "gradient_bytes")
    if layers_of is None and not layers and size is None and "gradient_bytes" not in document:
        hint = "gradient_bytes, or a table of layers, or --model NAME"
        reader.fault("gradient_bytes", "is missing: nothing says how many bytes are exchanged", hint=hint)
    points = _points(reader, document.get("points"))
    name, unit = reader.word(document, "name", source), reader.word(document, "unit", "samples")
    if reader.faults:
        raise RequestError(reader.faults)
    assert batch is not None
    before, backward, after = times
    profile = Profile(
        name=name,
        batch=batch,
        before=before,
        segments=segments(layers, size, backward, layers_of),
        after=after,
        unit=unit,
        source=source,
    )
    measured = [Observation(ranks=1, rate=batch / profile.step_seconds)] if points else []
    measured += [_observation(point, batch) for point in points if point["ranks"] != 1]
    largest = max(measured, key=lambda one: one.ranks, default=None)
    return MeasuredJob(
        profile=profile,
        points=tuple(measured),
        sharing=largest.sharing if largest is not None else 1.0,
        per_host=max((o.per_host for o in measured), default=0),
    )


def segments(
    layers: list[dict[str, Any]], size: float | None, backward: float, model: Model | None
) -> tuple[Segment, ...]:
    """Return the segments of a backward pass of so many seconds, from what is known best."""
    if model is not None:
        return tuple(
            Segment(size=FLOAT32 * layer.parameters, backward=backward * layer.work) for layer in model.layers
        )
    if not layers:
        return even_segments(int(size or 0), backward)
    told = sum(layer["backward_seconds"] for layer in layers)
    scale = backward / told if told else 0.0  # the layers say how backward is spread, the step how long it is
    return tuple(
        Segment(size=int(layer["bytes"]), backward=layer["backward_seconds"] * scale) for layer in layers
    )


class _Reader:
    """Takes numbers out of tables and keeps the faults."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.faults: list[Fault] = []

    def fault(self, where: str, what: str, hint: str = "") -> None:
        """Keep a fault."""
        self.faults.append(Fault(where=f"{self._source}: {where}", what=what, hint=hint))

    def number(
        self,
        table: Mapping[str, Any],
        key: str,
        *,
        place: str = "",
        required: bool = False,
        zero: bool = False,
        whole: bool = False,
    ) -> float | None:
        """Return a number above 0 (``zero``: or 0), else ``None``; what is no such number is a fault."""
        where = place + key
        if key not in table:
            if required:
                self.fault(where, "is missing")
            return None
        value = table[key]
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            self.fault(where, f"{value!r:.40} is not a {'whole ' if whole else ''}number")
            return None
        is_right = SMALLEST <= value <= MOST or (zero and value == 0)  # false for nan, too
        if not is_right:
            least = f"0, or from {SMALLEST:g}" if zero else f"from {SMALLEST:g}"
            self.fault(where, f"{value!r:.40} is not {least} to {MOST:g}")
            return None
        return value if whole else float(value)

    def word(self, table: Mapping[str, Any], key: str, otherwise: str) -> str:
        """Return a text as it can be printed on one line."""
        value = table.get(key, otherwise)
        if not isinstance(value, str):
            self.fault(key, f"{value!r:.40} is not text")
            return otherwise
        return "".join(letter if letter.isprintable() else "?" for letter in value)[:200]

    def tables(self, value: object, name: str) -> list[Mapping[str, Any]]:
        """Return a list of tables; what is not one is a fault."""
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            self.fault(name, "is not a list of tables")
            return []
        return value


def _times(reader: _Reader, document: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return the seconds before, of and after backward."""
    step = reader.number(document, "step_seconds")
    parts = document.get("parts")
    if parts is None:
        if step is None and "step_seconds" not in document:
            reader.fault("step_seconds", "is missing", hint="seconds of a step of one rank, or [parts]")
        known = step or 1.0
        return known / 3, known * 2 / 3, 0.0  # backward computes two products where forward computes one
    if not isinstance(parts, Mapping):
        reader.fault("parts", "is not a table", hint=f"[parts] with {', '.join(_PARTS)}")
        return 0.0, 0.0, 0.0
    for key in parts:
        if key not in _PARTS:
            reader.fault(f"parts.{key}", "is not a part of a step", hint=f"parts: {', '.join(_PARTS)}")
    took = {
        part: reader.number(parts, part, place="parts.", zero=True, required=part == "backward") or 0.0
        for part in _PARTS
    }
    total = sum(took.values())
    if step is not None and total > 0 and abs(total - step) > 0.05 * step:
        reader.fault("parts", f"add up to {total:g} s, and step_seconds is {step:g}")
    if total == 0 and not reader.faults:
        reader.fault("parts", "take no time")
    return took["input"] + took["forward"], took["backward"], took["optimizer"]


def _layers(reader: _Reader, value: object) -> list[dict[str, Any]]:
    found = []
    for index, table in enumerate(reader.tables(value, "layers")):
        place = f"layers[{index}]."
        size = reader.number(table, "bytes", place=place, required=True, zero=True)
        seconds = reader.number(table, "backward_seconds", place=place, required=True, zero=True)
        found.append({"bytes": size or 0.0, "backward_seconds": seconds or 0.0})
    return found


def _points(reader: _Reader, value: object) -> list[dict[str, Any]]:
    found = []
    for index, table in enumerate(reader.tables(value, "points")):
        place = f"points[{index}]."
        ranks = reader.number(table, "ranks", place=place, required=True, whole=True) or 1
        per_host = reader.number(table, "per_host", place=place, whole=True) or 0
        rate = reader.number(table, "rate", place=place)
        step = reader.number(table, "step_seconds", place=place)
        if rate is None and step is None and not {"rate", "step_seconds"} & set(table):
            reader.fault(
                f"{place}rate", "is missing", hint="samples per second of all ranks, or step_seconds"
            )
        if per_host and ranks > per_host and ranks % per_host:
            reader.fault(f"{place}per_host", f"{ranks} ranks do not fill hosts of {per_host}")
        sharing = reader.number(table, "sharing", place=place) or 1.0
        if sharing > 1:
            what = f"{sharing:g} is more than 1, one rank alone"
            reader.fault(f"{place}sharing", what, "rate of a rank that exchanges nothing beside the others")
        parts = {
            name: reader.number(table, f"{name}_seconds", place=place, zero=True)
            for name in ("exchange", "waiting")
        }
        found.append(
            {"ranks": ranks, "per_host": per_host, "rate": rate, "step": step, "sharing": sharing, **parts}
        )
    return found


def _observation(point: dict[str, Any], batch: float) -> Observation:
    rate = point["rate"] or point["ranks"] * batch / point["step"]
    step = point["ranks"] * batch / rate
    exposed, waiting = (
        None if point[name] is None else point[name] / step for name in ("exchange", "waiting")
    )
    return Observation(
        ranks=int(point["ranks"]),
        rate=rate,
        per_host=int(point["per_host"]),
        sharing=point["sharing"],
        exposed=exposed,
        waiting=waiting,
    )
