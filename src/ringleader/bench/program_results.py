"""Outputs of programs of others become transfers. Pure; what cannot be read becomes a note."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ringleader.fabric.active.program_output import ProgramOutput, SizeRow, program_outputs
from ringleader.measurements.point_to_point import Transfer


class ProgramResults:
    """Gathers outputs; those of one pair and size are joined."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._transfers: dict[tuple[int, int, int], Transfer] = {}
        self.notes: list[str] = []
        self.programs: list[str] = []
        self.memory = "host"

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """What was read so far, in the order in which it came."""
        return tuple(self._transfers.values())

    def take_text(self, text: str, source: int, target: int, *, message_bytes: int | None = None) -> None:
        """Take what a client printed. Raises ValueError where it cannot be read."""
        for output in program_outputs(text, message_bytes=message_bytes):
            self.take(output, source, target)

    def take(self, output: ProgramOutput, source: int, target: int) -> None:
        """Take one output of a client at ``source`` and a server at ``target``."""
        name = output.program.split()[0]
        if name not in self.programs:
            self.programs.append(name)
        self.notes += [note for note in output.notes if note not in self.notes]
        self.memory = output.memory if output.memory != "host" else self.memory
        ends = (target, source) if output.is_read else (source, target)
        for row in output.rows:
            self._add(row, *ends)

    def _add(self, row: SizeRow, source: int, target: int) -> None:
        known = self._transfers.get((source, target, row.size))
        fields = {
            "latency": row.latency,
            "latency_low": row.latency_low,
            "latency_p99": row.latency_p99,
            "rate": row.rate,
            "both_ways_rate": row.both_ways_rate,
        }
        given: dict[str, Any] = {name: value for name, value in fields.items() if value}
        twice = [name for name in given if known is not None and getattr(known, name) is not None]
        if twice:
            what = twice[0].replace("_", " ")
            raise ValueError(f"the {what} of messages of {row.size} bytes is there twice: read one at a time")
        base = known or Transfer(source=source, target=target, size=row.size)
        self._transfers[source, target, row.size] = replace(base, **given)

    def between(self, sizes: tuple[int, ...]) -> tuple[Transfer, ...]:
        """Return the transfers of sizes from the smallest to the largest asked for."""
        return tuple(one for one in self.transfers if sizes[0] <= one.size <= sizes[-1])


@dataclass(frozen=True, kw_only=True)
class ReadOutput:
    """What a file with outputs holds."""

    program: str
    transfers: tuple[Transfer, ...]
    memory: str
    notes: tuple[str, ...]


def read_output(text: str) -> ReadOutput:
    """Return what a file holds, between a client (0) and a server (1). Raises ValueError."""
    found = ProgramResults()
    found.take_text(text, 0, 1)
    return ReadOutput(
        program=", ".join(found.programs),
        transfers=in_order(found.transfers),
        memory=found.memory,
        notes=tuple(found.notes),
    )


def in_order(transfers: Iterable[Transfer]) -> tuple[Transfer, ...]:
    """Return them pair by pair, sizes ascending."""
    return tuple(sorted(transfers, key=lambda one: (one.source, one.target, one.size)))
