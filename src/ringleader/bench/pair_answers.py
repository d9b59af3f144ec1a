"""What the ranks of a point-to-point measurement have answered, as values. Pure.

What cannot be read is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ringleader.bench.program_results import ProgramResults
from ringleader.fabric.byte_size import byte_size
from ringleader.measurements.point_to_point import Silence, Transfer

_OF_PAIR = ("latency", "latency_low", "latency_p99", "both_ways_rate")
_OF_DIRECTION = ("rate", "rate_low", "rate_high")


class PairAnswers:
    """Gathers answers as they come."""

    def __init__(self, ranks: Sequence[int]) -> None:
        """``ranks``: those that measure, in the order of ``PointToPointRun.places``."""
        self._index = {rank: index for index, rank in enumerate(ranks)}
        self._ranks = ranks
        self.transfers: list[Transfer] = []
        self.silences: list[Silence] = []
        self.refusals: dict[int, str] = {}
        """Rank → why it could not measure."""
        self.devices: dict[int, str] = {}
        self.way = ""
        """``nccl`` where messages went by it; empty: as was asked for."""
        self.outputs = ProgramResults()
        """Of programs of others."""
        self._errors: dict[str, list[tuple[int, int]]] = {}
        self._left_out: dict[tuple[int, ...], list[tuple[int, int]]] = {}

    def take(self, rank: int, name: str, value: Any) -> None:
        """Take one answer."""
        take = {
            "size": self._take_size,
            "silence": self._take_silence,
            "left_out": self._take_left_out,
            "output": self._take_output,
        }.get(name)
        try:
            if take is not None:
                take(rank, value)
            elif name == "way":
                self.way = str(value)
            elif name in ("refused", "device"):
                (self.refusals if name == "refused" else self.devices)[rank] = str(value)
        except (KeyError, ValueError, TypeError, IndexError, AttributeError):
            return

    def _take_size(self, rank: int, value: Mapping[str, Any]) -> None:
        source, target = self._index[rank], self._index[value["target"]]
        shared = {name: _number(value.get(name)) for name in _OF_PAIR}
        for names, prefix in (((source, target), ""), ((target, source), "back_")):
            rates = {name: _number(value.get(prefix + name)) for name in _OF_DIRECTION}
            self.transfers.append(
                Transfer(
                    source=names[0],
                    target=names[1],
                    size=int(value["size"]),
                    window=int(value["window"]),
                    **shared,
                    **rates,
                )
            )

    def _take_silence(self, rank: int, value: Mapping[str, Any]) -> None:
        self.silences.append(
            Silence(
                source=self._index[rank],
                target=self._index[value["partner"]],
                during=str(value["during"]),
                seconds=float(value["seconds"]),
            )
        )

    def _take_left_out(self, rank: int, value: Mapping[str, Any]) -> None:
        sizes = tuple(int(size) for size in value["sizes"])
        self._left_out.setdefault(sizes, []).append((self._index[rank], self._index[value["target"]]))

    def _take_output(self, rank: int, value: Mapping[str, Any]) -> None:
        source, target = self._index[value["source"]], self._index[value["target"]]
        why = f"{value['test']}: {value['error']}" if value.get("error") else ""
        if not why:
            try:
                self.outputs.take_text(value["text"], source, target, message_bytes=value.get("size"))
            except ValueError as error:
                why = f"the output of {value['test']} cannot be read: {error}"
        if why:
            self._errors.setdefault(why, []).append((source, target))

    @property
    def heard(self) -> bool:
        """Something was measured, or somebody did not answer."""
        return bool(self.transfers or self.silences or self.outputs.transfers or self._errors)

    def notes(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return what was not measured, and why; ``names``: of the places."""
        left = (
            f"{_sizes(sizes)} between {_pairs(pairs, names)}: there was no time; --seconds gives more"
            for sizes, pairs in self._left_out.items()
            if sizes
        )
        errors = (f"{_pairs(pairs, names)}: {why}" for why, pairs in self._errors.items())
        return (*left, *errors, *self.outputs.notes)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _sizes(sizes: Sequence[int]) -> str:
    first, last = byte_size(sizes[0]), byte_size(sizes[-1])
    return f"messages of {first}" if first == last else f"messages of {first} to {last}"


def _pairs(pairs: Sequence[tuple[int, int]], names: Sequence[str]) -> str:
    first = " and ".join(names[one] for one in pairs[0])
    more = len(pairs) - 1
    return first if not more else f"{first}, and {more} more pair{'s' * (more > 1)}"
