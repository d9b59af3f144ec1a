"""Living ranks of several numbers that carry out the sequences of `tests/sequences`."""

from pathlib import Path
from typing import Any

from tests.collectives.served_ranks import ServedRanks

PROGRAM = Path(__file__).with_name("programs") / "training_sequences.py"


class SequenceRanks:
    """Ranks for every number that a sequence asks for, started when the first one comes."""

    def __init__(self, place: Path, environ: dict[str, str]) -> None:
        """``place``: a directory for sockets and what the ranks print."""
        self._place = place
        self._environ = environ | {"RINGLEADER_MISMATCH_PATIENCE": "0.2", "RINGLEADER_DEADLINE": "15"}
        self._ranks: dict[int, ServedRanks] = {}

    def answers(self, sequence: dict[str, Any]) -> list[Any]:
        size = sequence["size"]
        if size not in self._ranks:
            place = self._place / f"sequences{size}"
            place.mkdir()
            self._ranks[size] = ServedRanks(PROGRAM, size=size, place=place, environ=self._environ)
        return self._ranks[size].answers(sequence)

    def close(self) -> None:
        for ranks in self._ranks.values():
            ranks.close()

    def kill(self) -> None:
        for ranks in self._ranks.values():
            ranks.kill()
