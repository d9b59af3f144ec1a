"""What is required of the engine's speed: every row of the table that `make bench` ends with, in one place.

A script that measures a row prints it by its case (`Requirement.verdict`), `run.py` reads these lines, and
`table.py` writes them into the documentation.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

MISSING = "missing"


def line(
    what: str, reached: float, required: float, *, at_most: bool = False, aim: float | None = None
) -> str:
    """Return one line: what was required and what was reached."""
    good = reached <= required if at_most else reached >= required
    sign, further = "≤" if at_most else "≥", "" if aim is None else f", aim {aim:g}"
    verdict = "ok   " if good else "SHORT"
    return f"    {verdict} {what}: {reached:.3f} (required {sign} {required:g}{further})"


LINE = re.compile(
    r"^\s+(?P<verdict>ok|SHORT)\s+(?P<case>.+): (?P<reached>-?[\d.]+|inf|nan) "
    r"\(required (?P<sign>[≤≥]) (?P<required>-?[\d.]+)(?:, aim (?P<aim>-?[\d.]+))?\)$"
)
"""What `line` returns."""


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One row that must be printed."""

    case: str
    """What is measured; no other row has it."""
    against: str
    """The peer in the same run, and which of the two is divided by the other."""
    required: float
    aim: float
    at_most: bool = False
    """The number is to be small."""

    def verdict(self, reached: float) -> str:
        """Return the line that says it."""
        return line(self.case, reached, self.required, at_most=self.at_most, aim=self.aim)


MPI, IN_STEP, UNSHARDED = "Open MPI over ours", "ours over barrier-only ranks", "sharded over ours unsharded"
RAW_TCP = "raw TCP over ours"
IN_PLACE, SUM = "new results over in place", "averages over sums"


def _calls() -> Iterator[Requirement]:
    """Yield the rows of the calls that make a new result, and of averages."""
    for place in ("1 MiB", "8 MiB", "64 MiB", "64 MiB, float64", "64 MiB, bfloat16"):
        words: dict[str, Any] = {"at_most": True, "aim": 1.0}
        yield Requirement(case=f"{place}, average in place", against=SUM, required=1.05, **words)
        for call in ("new",) if "float" in place else ("new", "named", "begun", "grouped"):
            yield Requirement(case=f"{place}, {call}", against=IN_PLACE, required=1.25, **words)
    yield Requirement(
        case="64 MiB, new, over MPI", against="ours over Open MPI into a new array", required=0.67, aim=0.5,
        at_most=True,
    )  # fmt: skip


REQUIREMENTS = (
    Requirement(case="1 MiB, ordinary", against=MPI, required=1.25, aim=1.5),
    Requirement(case="8 MiB, ordinary", against=MPI, required=1.7, aim=2.2),
    Requirement(case="64 MiB, ordinary", against=MPI, required=3.5, aim=4.0),
    Requirement(case="1 MiB, registered", against=MPI, required=3.0, aim=3.5),
    Requirement(case="4 KiB, ordinary", against="ours over Open MPI", required=2.5, aim=2.0, at_most=True),
    Requirement(
        case="161 × 4 kB, async", against="ours over a loop of Open MPI", required=1.6, aim=1.3, at_most=True
    ),
    *_calls(),
    Requirement(case="64 MiB, 1 Gbit/s, gradients", against=RAW_TCP, required=0.92, aim=0.95),
    Requirement(case="64 MiB, 1 Gbit/s, ordinary", against=RAW_TCP, required=0.92, aim=0.95),
    Requirement(case="64 MiB, 2×1, 1 Gbit/s, gradients", against=RAW_TCP, required=0.92, aim=0.95),
    Requirement(case="64 MiB, 2×1, 1 Gbit/s, ordinary", against=RAW_TCP, required=0.92, aim=0.95),
    Requirement(case="8 MiB, 2×1, 1 Gbit/s, gradients", against=RAW_TCP, required=0.92, aim=0.95),
    Requirement(case="8 MiB, 2×1, 1 Gbit/s, ordinary", against=RAW_TCP, required=0.92, aim=0.95),
    Requirement(case="64 MiB, 2×1, 1 Gbit/s, new", against=RAW_TCP, required=0.92, aim=0.95),
    Requirement(case="8 MiB, 2×1, 1 Gbit/s, new", against=RAW_TCP, required=0.92, aim=0.95),
    Requirement(case="64 MiB, 8 Gbit/s, gradients", against="Gloo over ours", required=1.5, aim=1.8),
    Requirement(case="step, MLP 25 MB", against=IN_STEP, required=1.12, aim=1.08, at_most=True),
    Requirement(case="step, MNIST CNN", against=IN_STEP, required=1.02, aim=1.0, at_most=True),
    Requirement(case="step, MLP, AdamW", against=UNSHARDED, required=0.95, aim=0.8, at_most=True),
    Requirement(case="step, MLP, SGD+momentum", against=UNSHARDED, required=1.0, aim=0.92, at_most=True),
    Requirement(case="step, MLP, fused AdamW", against=UNSHARDED, required=1.0, aim=0.92, at_most=True),
    Requirement(
        case="optimizer state per rank, 4 ranks, AdamW",
        against="sharded over a replica's", required=0.27, aim=0.25, at_most=True,
    ),
    Requirement(
        case="ResNet-18, 1 Gbit/s, bf16 on the wire", against="DDP on Gloo over ours", required=1.07, aim=1.12
    ),
    Requirement(
        case="3 ranks on 2 cores, MLP", against="over 2 ranks on 2", required=1.7, aim=1.5, at_most=True
    ),
    Requirement(
        case="start of 2 ranks, seconds", against="ours minus mpirun", required=0.2, aim=0.2, at_most=True
    ),
)  # fmt: skip
BY_CASE: Mapping[str, Requirement] = {one.case: one for one in REQUIREMENTS}


def required(case: str, reached: float) -> str:
    """Return the line of a row; KeyError where nothing of that name is required."""
    return BY_CASE[case].verdict(reached)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the final table."""

    case: str
    against: str
    script: str
    reached: float | None
    """None: it was not printed."""
    required: float
    aim: float | None
    at_most: bool
    short: bool
    """Not reached, or missing."""

    HEADERS: ClassVar[tuple[str, ...]] = ("case", "against", "reached", "required", "aim", "")

    def cells(self) -> tuple[str, ...]:
        """Return what is in the columns."""
        sign = "≤" if self.at_most else "≥"
        verdict = MISSING if self.reached is None else "SHORT" if self.short else "ok"
        reached = "–" if self.reached is None else f"{self.reached:.3f}"
        aim = "" if self.aim is None else f"{self.aim:g}"
        return (self.case, self.against, reached, f"{sign} {self.required:g}", aim, verdict)


def collected(printed: Mapping[str, Sequence[str]], *, whole: bool) -> list[Row]:
    """Return the rows of what scripts printed: those that are required first, in their order.

    With ``whole`` those that nobody printed are among them, as missing.
    """
    found = [
        _row(script, match)
        for script, lines in printed.items()
        for text in lines
        if (match := LINE.match(text)) is not None
    ]
    rows: list[Row] = []
    for one in REQUIREMENTS:
        rows += (own := [row for row in found if row.case == one.case])
        if whole and not own:
            rows.append(
                Row(
                    case=one.case, against=one.against, script="", reached=None,
                    required=one.required, aim=one.aim, at_most=one.at_most, short=True,
                )
            )  # fmt: skip
    return rows + [row for row in found if row.case not in BY_CASE]


def _row(script: str, match: re.Match[str]) -> Row:
    case = match["case"]
    return Row(
        case=case,
        against=BY_CASE[case].against if case in BY_CASE else "",
        script=script,
        reached=float(match["reached"]),
        required=float(match["required"]),
        aim=float(match["aim"]) if match["aim"] else None,
        at_most=match["sign"] == "≤",
        short=match["verdict"] == "SHORT",
    )


def reasons() -> dict[str, str]:
    """Return the measured reasons why rows are short, by case, as somebody wrote them down."""
    with (Path(__file__).parent / "reasons.toml").open("rb") as file:
        return {str(case): str(why) for case, why in tomllib.load(file).items()}
