"""What the ranks of a point-to-point measurement have answered, as transfers; outputs of programs, too. Pure.

What cannot be read is left out, or becomes a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ringleader.bench.program_output import ProgramOutput, program_outputs
from ringleader.fabric.byte_size import byte_size
from ringleader.measurements.point_to_point import Silence, Transfer

_OF_PAIR = ("latency", "latency_low", "latency_p99", "both_ways_rate")
_OF_DIRECTION = ("rate", "rate_low", "rate_high")


class ProgramResults:
    """Outputs of programs of others as transfers; those of one pair, size and RDMA port are joined."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._transfers: dict[tuple[int, int, int, str], Transfer] = {}
        self.notes: list[str] = []
        self.programs: list[str] = []
        self.memory = "host"

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """What was read so far, pair by pair, sizes ascending."""
        every = self._transfers.values()
        return tuple(sorted(every, key=lambda one: (one.source, one.target, one.device, one.size)))

    def take_text(
        self, text: str, source: int, target: int, *, message_bytes: int | None = None, device: str = ""
    ) -> None:
        """Take what a client at ``source`` printed. Raises ValueError where it cannot be read."""
        for output in program_outputs(text, message_bytes=message_bytes):
            self._take(output, source, target, device)

    def _take(self, output: ProgramOutput, source: int, target: int, device: str) -> None:
        name = output.program.split()[0]
        if name not in self.programs:
            self.programs.append(name)
        self.notes += [note for note in output.notes if note not in self.notes]
        self.memory = output.memory if output.memory != "host" else self.memory
        ends = (target, source) if output.is_read else (source, target)
        for row in output.rows:
            key = (*ends, row.size, device)
            known = self._transfers.get(key)
            given = {name: value for name, value in vars(row).items() if value and name != "size"}
            twice = [name for name in given if known is not None and getattr(known, name) is not None]
            if twice:
                what = twice[0].replace("_", " ")
                raise ValueError(
                    f"the {what} of messages of {row.size} bytes is there twice: read one at a time"
                )
            base = known or Transfer(source=ends[0], target=ends[1], size=row.size, device=device)
            self._transfers[key] = replace(base, **given)

    def between(self, sizes: tuple[int, ...]) -> tuple[Transfer, ...]:
        """Return the transfers of sizes from the smallest to the largest asked for."""
        return tuple(one for one in self.transfers if sizes[0] <= one.size <= sizes[-1])


@dataclass(frozen=True, kw_only=True)
class ProgramError:
    """A program of others that measured nothing between two of the places."""

    source: int
    target: int
    test: str
    """``ib_write_bw``, ``tag_bw`` …"""
    why: str


class PairAnswers:
    """Gathers answers as they come."""

    def __init__(self, ranks: Sequence[int]) -> None:
        """``ranks``: those that measure, in the order of ``PointToPointRun.places``."""
        self._index = {rank: index for index, rank in enumerate(ranks)}
        self.transfers: list[Transfer] = []
        self.silences: list[Silence] = []
        self.refusals: dict[int, str] = {}
        """Rank → why it could not measure."""
        self.devices: dict[int, str] = {}
        self.way = ""
        """``nccl`` where messages went by it; empty: as was asked for."""
        self.outputs = ProgramResults()
        self.errors: list[ProgramError] = []
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
        shared: dict[str, Any] = {name: _number(value.get(name)) for name in _OF_PAIR}
        for ends, prefix in (((source, target), ""), ((target, source), "back_")):
            rates: dict[str, Any] = {name: _number(value.get(prefix + name)) for name in _OF_DIRECTION}
            size, window = int(value["size"]), int(value["window"])
            self.transfers.append(
                Transfer(source=ends[0], target=ends[1], size=size, window=window, **shared, **rates)
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
        test, why = str(value["test"]), str(value.get("error") or "")
        if not why:
            device = str(value.get("device", ""))
            try:
                self.outputs.take_text(
                    value["text"], source, target, message_bytes=value.get("size"), device=device
                )
            except ValueError as error:
                why = f"its output cannot be read: {error}"
        if why:
            self.errors.append(ProgramError(source=source, target=target, test=test, why=why))

    @property
    def heard(self) -> bool:
        """Something was measured, or somebody did not answer."""
        return bool(self.transfers or self.silences or self.outputs.transfers or self.errors)

    def notes(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return what was not measured, and why; ``names``: of the places."""
        left = (
            f"{_sizes(sizes)} between {_pairs(pairs, names)}: there was no time; --seconds gives more"
            for sizes, pairs in self._left_out.items()
            if sizes
        )
        errors: dict[str, list[tuple[int, int]]] = {}
        for one in self.errors:
            errors.setdefault(f"{one.test}: {one.why}", []).append((one.source, one.target))
        told = (f"{_pairs(pairs, names)}: {why}" for why, pairs in errors.items())
        return (*left, *told, *self.outputs.notes)


def rates_of(names: Sequence[str], transfers: Iterable[Transfer]) -> dict[tuple[str, str], float]:
    """Return (source, target) → the highest rate of these transfers, in bits per second."""
    best: dict[tuple[str, str], float] = {}
    for one in transfers:
        pair = names[one.source], names[one.target]
        if one.rate is not None:
            best[pair] = max(best.get(pair, 0.0), 8 * one.rate)
    return best


def latencies_of(names: Sequence[str], transfers: Iterable[Transfer]) -> dict[tuple[str, str], float]:
    """Return each pair once → its lowest latency among these transfers, in seconds."""
    lowest: dict[frozenset[int], tuple[tuple[str, str], float]] = {}
    for one in transfers:
        if one.latency is not None:
            pair = frozenset((one.source, one.target))
            known, least = lowest.get(pair, ((names[one.source], names[one.target]), one.latency))
            lowest[pair] = known, min(least, one.latency)
    return dict(lowest.values())


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _sizes(sizes: Sequence[int]) -> str:
    first, last = byte_size(sizes[0]), byte_size(sizes[-1])
    return f"messages of {first}" if first == last else f"messages of {first} to {last}"


def _pairs(pairs: Sequence[tuple[int, int]], names: Sequence[str]) -> str:
    first = " and ".join(names[one] for one in pairs[0])
    more = len(pairs) - 1
    return first if not more else f"{first}, and {more} more pair{'s' * (more > 1)}"
