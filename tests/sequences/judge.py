"""Judges what ranks did with a sequence, and finds the smallest one that fails alike.

`Trials` carries out sequences on living ranks and, beside them, on replicas in plain PyTorch.
"""

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.sequences.generator import Sequence, draw, equal_only, operations, shrinks
from tests.sequences.script import Script
from tests.sequences.worlds import Replica, replicate

MOST_TRIES = 150
"""Sequences that are tried to make a failing one smaller."""
TOLERANCE = {"float64": 3e-5, "float32": 3e-5, "half": 0.02, "float16": 0.02, "fp16": 0.02, "bfloat16": 0.1}
TOLERANCE["bf16"] = TOLERANCE["bfloat16"]
"""Difference from plain PyTorch, relative to the largest element or 1, by the smallest type that was used."""


@dataclass(kw_only=True)
class Failure:
    sequence: Sequence
    """The smallest one that was found."""
    why: str
    """What was wrong, as `category: detail`."""

    @property
    def category(self) -> str:
        return self.why.partition(":")[0]

    def __str__(self) -> str:
        return f"{self.why}\n  sequence: {json.dumps(self.sequence)}"


def reference(sequence: Sequence) -> list[list[dict[str, Any]]]:
    """Return the records of all replicas in plain PyTorch."""

    def one(rank: int, meeting: Any) -> list[dict[str, Any]]:
        return Script(sequence, Replica(meeting, rank, sequence["wrap"])).run()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return replicate(sequence["size"], one)


def verdict(
    sequence: Sequence, found: list[list[dict[str, Any]]], right: list[list[dict[str, Any]]]
) -> str | None:
    """Return what is wrong with the records of all ranks, None where nothing is."""
    members = sequence["wrap"].get("process_set", range(sequence["size"]))
    tolerance = TOLERANCE.get(sequence["wrap"].get("compression"), 0.0)
    for step in range(len(sequence["steps"])):
        mine = [records[step] for records in found]
        theirs = [records[step] for records in right]
        if len({mine[rank]["digest"] for rank in members}) > 1:
            return f"ranks differ: after step {step}"
        around = [*sequence["steps"][step]["before"], *sequence["steps"][step]["after"]]
        types = [one["dtype"] for one in theirs] + [one[1] for one in around if one[0] == "convert"]
        tolerance = max([tolerance, *(TOLERANCE.get(one, 0.0) for one in types)])
        for rank, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            if (why := _difference(one, other, tolerance, exact_only=equal_only(sequence))) is not None:
                return f"{why}, after step {step} on rank {rank}"
    return None


def _difference(
    one: dict[str, Any], other: dict[str, Any], tolerance: float, *, exact_only: bool
) -> str | None:
    for name, same in one["kept"].items():
        if other["kept"].get(name) and not same:
            return f"kept gradient changed: {name}"
    if _far([rate for group in one["rates"] for rate in group], [r for g in other["rates"] for r in g], 1e-6):
        return f"learning rates: {one['rates']} instead of {other['rates']}"
    if one["dtype"] != other["dtype"]:
        return f"type: {one['dtype']} instead of {other['dtype']}"
    if exact_only:
        return None
    for what in ("parameters", "gradients"):
        for at, (values, right) in enumerate(zip(one[what], other[what], strict=True)):
            if (far := _far(values, right, tolerance)) is not None:
                return f"{what} differ from plain PyTorch: number {at} by {far:.3g}"
    if (far := _far(one["extra"], other["extra"], max(tolerance, 1e-4) * 4)) is not None:
        return f"returned values differ from plain PyTorch: {one['extra']} instead of {other['extra']}"
    return None


def _far(values: list[float], right: list[float], tolerance: float) -> float | None:
    if len(values) != len(right):
        return float("inf")
    if not right:
        return None
    most = max(abs(a - b) for a, b in zip(values, right, strict=True))
    largest = max(1.0, *(abs(one) for one in right))
    return None if most <= tolerance * largest else most


@dataclass(kw_only=True)
class Outcome:
    failures: list[Failure] = field(default_factory=list)
    used: Counter[str] = field(default_factory=Counter)
    """How many sequences had each operation and argument."""


class Trials:
    """Carries out sequences. ``answer`` gives what each rank said of one: records, or why it failed."""

    def __init__(self, answer: Callable[[Sequence], list[Any]]) -> None:
        self._answer = answer
        self._beside = ThreadPoolExecutor(1)

    def failure(self, sequence: Sequence) -> str | None:
        right = self._beside.submit(reference, sequence)
        answers = self._answer(sequence)
        failed = [(rank, one["failed"]) for rank, one in enumerate(answers) if "failed" in one]
        try:
            expected = right.result()
        except Exception as error:
            return f"plain PyTorch refuses {type(error).__name__}: {error}"
        if failed:
            # Ranks that waited for another one name its end; that one names the reason.
            first = min(failed, key=_is_consequence)
            last = first[1].strip().splitlines()[-1]
            kind, _colon, said = last.partition(":")
            return f"{kind} {said.strip()[:60]}: on rank {first[0]}\n{first[1]}"
        return verdict(sequence, [one["records"] for one in answers], expected)

    def smallest(self, found: Failure) -> Failure:
        tries, smaller = 0, True
        while smaller and tries < MOST_TRIES:
            smaller = False
            for candidate in shrinks(found.sequence):
                tries += 1
                why_now = self.failure(candidate)
                if why_now is not None and why_now.partition(":")[0] == found.category:
                    found, smaller = Failure(sequence=candidate, why=why_now), True
                    break
                if tries >= MOST_TRIES:
                    break
        return found

    def run(
        self, seeds: Iterable[int], *, shrink: bool = True, report: Callable[[str], None] = print
    ) -> Outcome:
        """Carry out the sequences of these seeds, layout by layout, as a change of it costs time."""
        outcome = Outcome()
        drawn = sorted(map(draw, seeds), key=lambda one: (one["size"], one["per_host"], one["seed"]))
        for sequence in drawn:
            outcome.used.update(set(_used(sequence)))
            why = self.failure(sequence)
            if why is None:
                continue
            failure = Failure(sequence=sequence, why=why)
            failure = self.smallest(failure) if shrink else failure
            report(f"seed {sequence['seed']}: {failure}")
            outcome.failures.append(failure)
        return outcome


def _is_consequence(failed: tuple[int, str]) -> tuple[bool, int]:
    """Sort ranks that failed as another one did after those that name a reason."""
    rank, why = failed
    return why == "no answer" or "HorovodInternalError" in why.strip().splitlines()[-1], rank


def _used(sequence: Sequence) -> Iterable[str]:
    yield from (" ".join(map(str, one)) for one in operations(sequence))
    yield from (f"{key}={value}" for key, value in sequence["wrap"].items())
    yield from (f"{key}={sequence[key]}" for key in ("size", "per_host", "optimizer", "optimizers"))
    yield from (f"{key}={value}" for key, value in sequence["net"].items())
