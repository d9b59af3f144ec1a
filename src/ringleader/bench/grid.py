"""The sizes of a scaling run: ``1x1,1x2,2x2,4x2``, hosts × slots. Pure; all faults at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ringleader.errors import Fault, RequestError
from ringleader.plan.job import Host

_SIZE = re.compile(r"([0-9]{1,6})[x×*]([0-9]{1,6})")


@dataclass(frozen=True, kw_only=True)
class Size:
    """One point of the grid."""

    hosts: int
    slots: int
    """Ranks on each of them."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.hosts * self.slots

    def __str__(self) -> str:
        return f"{self.hosts}x{self.slots}"


def parse_grid(text: str, where: str = "--grid") -> tuple[Size, ...]:
    """Return the sizes in the order given; RequestError with every fault in it. ``where``: their option."""
    sizes: list[Size] = []
    found: list[Fault] = []
    for word in (part.strip() for part in text.split(",")):
        match = _SIZE.fullmatch(word)
        if not match:
            found.append(
                Fault(
                    where=where,
                    what=f"{word!r} is not a size" if word else "an empty size",
                    hint="write hosts x slots, for example 1x1,1x2,2x2",
                )
            )
            continue
        size = Size(hosts=int(match[1]), slots=int(match[2]))
        if size.ranks == 0:
            found.append(Fault(where=where, what=f"{word} has no rank", hint="use at least 1x1"))
        elif size in sizes:
            found.append(Fault(where=where, what=f"{word} is there twice", hint="name it once"))
        else:
            sizes.append(size)
    if found:
        raise RequestError(found)
    return tuple(sizes)


ONE = Size(hosts=1, slots=1)


def with_baseline(sizes: Sequence[Size], baseline: Size = ONE) -> tuple[Size, ...]:
    """Return the sizes with the baseline among them, which speed-up and efficiency are measured against."""
    return tuple(sizes) if baseline in sizes else (baseline, *sizes)


def parse_baseline(text: str) -> Size:
    """Return the size of ``--baseline``; RequestError where it is not one size."""
    sizes = parse_grid(text, "--baseline")
    if len(sizes) > 1:
        raise RequestError(Fault(where="--baseline", what=f"{text} is {len(sizes)} sizes", hint="name one"))
    return sizes[0]


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


def check_grid(sizes: Sequence[Size], hosts: Sequence[Host], *, oversubscribe: bool = False) -> None:
    """Raise RequestError with every size that the hosts cannot take."""
    there = ", ".join(host.name if host.slots is None else f"{host.name}:{host.slots}" for host in hosts)
    found = [
        Fault(
            where="--grid",
            what=f"{size} needs {_hosts(size.hosts)} with {size.slots} slots or more; there are: "
            + (there or "this machine alone"),
            hint="give the hosts with -H or --hostfile, start a lab and add --lab, or ask for a smaller size",
        )
        for size in sizes
        if hosts_for(size, hosts, oversubscribe=oversubscribe) is None
    ]
    if found:
        raise RequestError(found)


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"


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
