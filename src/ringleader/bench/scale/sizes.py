"""Sizes of a scaling run, ``1x1,1x2,2x2,4x2``: hosts and command of each. Pure; all faults at once.

In the command ``{ranks}``, ``{hosts}`` and ``{batch}`` stand for a size's own; ``{{ranks}}`` is a plain
``{ranks}``. With ``--global-batch B`` a rank's batch is B / N, so that all ranks together train B samples in
each step whatever their number N: strong scaling. `measurement` runs the sizes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ringleader.errors import Fault, RequestError
from ringleader.plan.job import Host
from ringleader.scaling import Size

ONE = Size(hosts=1, slots=1)
_SIZE = re.compile(r"([0-9]{1,6})[x×*]([0-9]{1,6})")
_PLACEHOLDER = re.compile(r"\{\{(ranks|hosts|batch)\}\}|\{(ranks|hosts|batch)\}")


def parse_grid(text: str, where: str = "--grid") -> tuple[Size, ...]:
    """Return the sizes in the order given; RequestError with every fault in it. ``where``: their option."""
    sizes: list[Size] = []
    found: list[Fault] = []
    for word in (part.strip() for part in text.split(",")):
        match = _SIZE.fullmatch(word)
        size = Size(hosts=int(match[1]), slots=int(match[2])) if match else None
        if size is None:
            what, hint = f"{word!r} is not a size", "write hosts x slots, for example 1x1,1x2,2x2"
            found.append(Fault(where=where, what=what if word else "an empty size", hint=hint))
        elif size.ranks == 0:
            found.append(Fault(where=where, what=f"{word} has no rank", hint="use at least 1x1"))
        elif size in sizes:
            found.append(Fault(where=where, what=f"{word} is there twice", hint="name it once"))
        else:
            sizes.append(size)
    if found:
        raise RequestError(found)
    return tuple(sizes)


def parse_baseline(text: str | None) -> Size:
    """Return the size of ``--baseline``, else one rank; RequestError where it is not one size."""
    sizes = (ONE,) if text is None else parse_grid(text, "--baseline")
    if len(sizes) > 1:
        raise RequestError(f"{text} is {len(sizes)} sizes", where="--baseline", hint="name one")
    return sizes[0]


def with_baseline(sizes: Sequence[Size], baseline: Size = ONE) -> tuple[Size, ...]:
    """Return the sizes with the baseline among them, which speed-up and efficiency are measured against."""
    return tuple(sizes) if baseline in sizes else (baseline, *sizes)


def default_grid(hosts: Sequence[Host], cores: int) -> tuple[Size, ...]:
    """Return the sizes to take when none were named: doubling up to all slots, then up to all hosts.

    ``cores`` is the number of ranks a host without a slot count takes, at least 1.
    """
    slots = min((host.slots or cores for host in hosts), default=cores)
    sizes = [Size(hosts=1, slots=count) for count in _doubling(slots)]
    sizes += [Size(hosts=count, slots=slots) for count in _doubling(max(1, len(hosts)))[1:]]
    return tuple(sizes)


def _doubling(top: int) -> list[int]:
    """1, 2, 4 … and ``top`` itself."""
    return [*(1 << power for power in range((top - 1).bit_length())), top]


# --- hosts ------------------------------------------------------------------------------------------------


def hosts_for(size: Size, hosts: Sequence[Host], *, oversubscribe: bool = False) -> tuple[Host, ...] | None:
    """Return the first ``size.hosts`` hosts that take ``size.slots`` ranks, or ``None`` if too few do.

    Each gets just that many slots. Empty ``hosts`` is this machine: the answer is empty too.
    """
    if not hosts:
        return () if size.hosts == 1 else None
    fit = [host for host in hosts if oversubscribe or host.slots is None or host.slots >= size.slots]
    if len(fit) < size.hosts:
        return None
    return tuple(Host(name=host.name, slots=size.slots) for host in fit[: size.hosts])


def host_words(hosts: Sequence[Host]) -> tuple[str, ...]:
    """Return hosts as they are stored: ``h1:2``, or ``h1`` without a slot count."""
    return tuple(host.name if host.slots is None else f"{host.name}:{host.slots}" for host in hosts)


def faults_of_hosts(
    sizes: Sequence[Size], hosts: Sequence[Host], *, cores: int, oversubscribe: bool = False
) -> list[Fault]:
    """Return every size that the hosts cannot take; without hosts, this machine with ``cores``."""
    found = []
    for size in sizes:
        if hosts_for(size, hosts, oversubscribe=oversubscribe) is None:
            count = "1 host" if size.hosts == 1 else f"{size.hosts} hosts"
            there = ", ".join(host_words(hosts)) or "this machine alone"
            what = f"{size} needs {count} with {size.slots} slots or more; there are: {there}"
            hint = (
                "give the hosts with -H or --hostfile, start a lab and add --lab, or ask for a smaller size"
            )
            found.append(Fault(where="--grid", what=what, hint=hint))
    if found or hosts or oversubscribe:
        return found
    hint = "ask for a smaller size, or add --oversubscribe (it measures crowding, not scaling)"
    return [
        Fault(where="--grid", what=f"{size} needs {size.slots} cores, this machine has {cores}", hint=hint)
        for size in sizes
        if size.slots > cores
    ]


# --- commands ---------------------------------------------------------------------------------------------


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
    command: Sequence[str], sizes: Sequence[Size], *, strong: bool, global_batch: int | None
) -> list[Fault]:
    """Return what is wrong with the batch: sizes that it does not divide by, words that do not fit."""
    found: list[Fault] = []

    def add(where: str, what: str, hint: str) -> None:
        found.append(Fault(where=where, what=what, hint=hint))

    if global_batch is None:
        if "batch" in placeholders(command):
            what = "{batch} is a rank's share of --global-batch, which is missing"
            add("COMMAND", what, "add --strong --global-batch 256; for the text itself write {{batch}}")
        return found
    if not strong:
        hint = "add --strong; in weak scaling the script's own batch is that of each rank"
        add("--global-batch", "is the batch of strong scaling", hint)
    if global_batch < 1:
        add("--global-batch", f"{global_batch} samples", "use at least 1")
        return found
    if strong and not placeholders(command) & {"batch", "ranks"}:
        what = "has no {batch}: each rank would train the same batch at every size"
        add("COMMAND", what, "hand it to the script: -- python train.py --batch-size {batch}")
    for size in sizes:
        if global_batch % size.ranks:
            what = f"{global_batch} samples do not divide by the {size.ranks} ranks of {size}"
            add("--global-batch", what, "take a multiple of every size's ranks, or leave the size out")
    return found
