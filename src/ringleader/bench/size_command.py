"""The command of each size: ``{ranks}``, ``{hosts}``, ``{batch}`` in its words stand for that size's. Pure.

With ``--global-batch B`` a rank's batch is B / N, so that all ranks together train B samples in each step
whatever their number N: strong scaling. ``{{ranks}}`` is a plain ``{ranks}``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ringleader.bench.grid import Size
from ringleader.errors import Fault

_PLACEHOLDER = re.compile(r"\{\{(ranks|hosts|batch)\}\}|\{(ranks|hosts|batch)\}")


def placeholders(command: Sequence[str]) -> frozenset[str]:
    """Return the names that stand for a size's numbers in the command."""
    return frozenset(match[2] for word in command for match in _PLACEHOLDER.finditer(word) if match[2])


def command_of(command: Sequence[str], size: Size, global_batch: int | None) -> tuple[str, ...]:
    """Return the words that every rank runs at this size. ``global_batch`` divides by its ranks."""
    numbers = {"ranks": size.ranks, "hosts": size.hosts}
    if global_batch is not None:
        numbers["batch"] = global_batch // size.ranks

    def number(match: re.Match[str]) -> str:
        if match[1]:
            return "{" + match[1] + "}"
        return str(numbers[match[2]]) if match[2] in numbers else match[0]

    return tuple(_PLACEHOLDER.sub(number, word) for word in command)


def batch_faults(
    command: Sequence[str], grid: Sequence[Size], *, strong: bool, global_batch: int | None
) -> list[Fault]:
    """Return what is wrong with the batch: sizes that it does not divide by, words that do not fit."""
    found = []
    has_batch = "batch" in placeholders(command)
    if global_batch is not None and not strong:
        hint = "add --strong; in weak scaling the script's own batch is that of each rank"
        found.append(Fault(where="--global-batch", what="is the batch of strong scaling", hint=hint))
    if global_batch is None and has_batch:
        what = "{batch} is a rank's share of --global-batch, which is missing"
        hint = "add --strong --global-batch 256; for the text itself write {{batch}}"
        found.append(Fault(where="COMMAND", what=what, hint=hint))
    if global_batch is None:
        return found
    if global_batch < 1:
        found.append(Fault(where="--global-batch", what=f"{global_batch} samples", hint="use at least 1"))
        return found
    if strong and not placeholders(command) & {"batch", "ranks"}:
        what = "has no {batch}: each rank would train the same batch at every size"
        hint = "hand it to the script: -- python train.py --batch-size {batch}"
        found.append(Fault(where="COMMAND", what=what, hint=hint))
    for size in grid:
        if global_batch % size.ranks:
            what = f"{global_batch} samples do not divide by the {size.ranks} ranks of {size}"
            hint = "take a multiple of every size's ranks, or leave the size out"
            found.append(Fault(where="--global-batch", what=what, hint=hint))
    return found
