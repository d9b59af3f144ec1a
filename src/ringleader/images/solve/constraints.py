"""What ``ringleader image solve`` is asked for: ``torch=2.8 gpu=h100``. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ringleader.errors import Fault, RequestError
from ringleader.images.base_image import find_base
from ringleader.images.blocks.mpi import PROJECTS
from ringleader.images.tables import Tables
from ringleader.images.tables.version_order import key, matches, nearest, newest

NEWEST = "newest"
NONE = "none"
NETWORKS = ("infiniband", "roce", "efa", "erdma", "tcp")


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """What the set must have; empty: anything. A version may be the beginning of one: ``2.8``."""

    torch: str = ""
    tensorflow: str = ""
    python: str = ""
    base: str = ""
    cuda: str = ""
    """``none``: for CPUs."""
    nccl: str = ""
    gpu: str = ""
    """Names with commas between."""
    driver: str = ""
    mpi: str = ""
    """``openmpi``, ``mpich``, or with a version: ``openmpi-5.0``."""
    rdma: str = ""
    network: str = ""

    @property
    def gpus(self) -> tuple[str, ...]:
        """Return each GPU."""
        return tuple(name.strip() for name in self.gpu.split(",") if name.strip())

    def given(self) -> dict[str, str]:
        """Return the constraints that are not empty."""
        return {name: value for name in CHECKS if (value := str(getattr(self, name)))}


def parse(words: Iterable[str], tables: Tables) -> Constraints:
    """Return the constraints that words such as ``torch=2.8`` make; RequestError with every fault."""
    faults: list[Fault] = []
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not value.strip():
            what = "is not NAME=VALUE"
            faults.append(Fault(where=_shown(word), what=what, hint="such as torch=2.8 gpu=h100"))
        elif name not in CHECKS:
            close = difflib.get_close_matches(name, CHECKS, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            known = ", ".join(CHECKS)
            faults.append(Fault(where=_shown(word), what="unknown word", hint=f"{hint}Known: {known}"))
        elif name in found and name != "gpu":
            faults.append(Fault(where=_shown(word), what=f"{name} is given twice"))
        else:
            fault = CHECKS[name](value.strip(), tables)
            faults += [Fault(where=_shown(word), what=fault[0], hint=fault[1])] if fault else []
            found[name] = ",".join(filter(None, (found.get(name), value.strip())))
    if faults:
        raise RequestError(faults)
    return Constraints(**found)


def _shown(word: str) -> str:
    plain = "".join(one if one.isprintable() else "?" for one in word)
    return plain if len(plain) <= 60 else f"{plain[:59]}…"


Problem = tuple[str, str] | None
"""What is wrong with a value, and a hint."""
Check = Callable[[str, Tables], Problem]
Known = Callable[[Tables], Sequence[str]]
"""What there is of something, by the tables."""


def _version(who: str, value: str, known: Sequence[str], *words: str) -> Problem:
    """Return what is wrong with a version; None where one of the known ones begins so, or it is a word."""
    if value in words:
        return None
    if not key(value) or not value.replace(".", "").isalnum():
        return (f"{value!r} is no version", f"such as {newest(known)}")
    if any(matches(one, value) for one in known):
        return None
    near = ", ".join(nearest(value, known))
    return (f"there is no {who} {value}", f"nearest: {near}; newest: {newest(known)}")


def _versions(who: str, known: Known, *words: str) -> Check:
    return lambda value, tables: _version(who, value, known(tables), *words)


def _names(who: str, known: Known) -> Check:
    def problem(value: str, tables: Tables) -> Problem:
        names = known(tables)
        return None if value in names else (f"unknown {who} {value!r}", f"known: {', '.join(names)}")

    return problem


def _pythons(tables: Tables) -> list[str]:
    lists = [row.pythons for row in tables.torch] + [row.pythons for row in tables.bases]
    return sorted({one for pythons in lists for one in pythons}, key=key)


def _base(value: str, tables: Tables) -> Problem:
    if (found := find_base(value)) is not None and found.name.partition(":")[0] == value.partition(":")[0]:
        return None
    return (
        f"{value!r} is no base that the tables know",
        f"known: {', '.join(row.name for row in tables.bases)}",
    )


def _gpu(value: str, tables: Tables) -> Problem:
    known = [row.name for row in tables.gpus]
    wrong = [name for name in value.split(",") if name.strip() and tables.gpu(name.strip()) is None]
    return (f"unknown GPU {', '.join(wrong)}", f"known: {', '.join(known)}") if wrong else None


def _driver(value: str, tables: Tables) -> Problem:
    plain = value.replace(".", "")
    return None if plain.isdigit() and plain.isascii() else (f"{value!r} is no version", "such as 550.54.15")


def _mpi(value: str, tables: Tables) -> Problem:
    kind, _, version = value.partition("-")
    kinds = list(dict.fromkeys(row.kind for row in tables.mpi))
    if kind not in kinds:
        return (f"unknown MPI {kind!r}", f"known: {', '.join(kinds)}, with a version: openmpi-5.0")
    # What is packaged nowhere is compiled: only releases whose checksum is known.
    had = {*PROJECTS[kind].sha256, *(row.version(kind) for row in tables.packaged.values())}
    known = [one for row in tables.mpi if row.kind == kind for one in row.versions if one in had]
    return _version(kind, version, known) if version else None


CHECKS: dict[str, Check] = {
    "torch": _versions(
        "PyTorch", lambda tables: [version for row in tables.torch for version, _ in row.versions], NEWEST
    ),
    "tensorflow": _versions(
        "TensorFlow",
        lambda tables: [version for row in tables.tensorflow for version in row.versions],
        NEWEST,
    ),
    "python": _versions("Python in the tables", _pythons),
    "base": _base,
    "cuda": _versions("CUDA", lambda tables: [row.cuda for row in tables.cuda], NONE),
    "nccl": _versions("NCCL", lambda tables: [row.version for row in tables.nccl]),
    "gpu": _gpu,
    "driver": _driver,
    "mpi": _mpi,
    "rdma": _names("user space", lambda tables: list(tables.user_spaces)),
    "network": _names("network", lambda tables: NETWORKS),
}
"""Word → what is wrong with a value of it."""
