"""Profiles of hosts as TOML: read into an ``Expectation``, and written. Pure: a parsed mapping comes in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ringleader.errors import Fault, RequestError
from ringleader.fabric.checks.expectation import Expectation
from ringleader.fabric.facts import UNLIMITED
from ringleader.fabric.versions import version_of
from ringleader.fabric.wires import RDMA

SIZES = {"": 1, "bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
RATES = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "Tbit/s": 1e12}
WIRES = tuple(sorted(one.value for one in RDMA))


class _WrongValueError(ValueError):
    """What a value should have been."""


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _WrongValueError("a whole number, 0 or more")
    return value


def _size(value: Any) -> int:
    if value == "unlimited":
        return UNLIMITED
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return int(_quantity(value, SIZES, 'a size (64, "8 GiB", "512 MiB") or "unlimited"'))


def _bounded_size(value: Any) -> int:
    if value == "unlimited":
        raise _WrongValueError('a size: 64, "8 GiB", "512 MiB"')
    return _size(value)


def _limit(value: Any) -> int:
    return UNLIMITED if value == "unlimited" else _count(value)


def _rate(value: Any) -> float:
    return _quantity(value, RATES, 'a rate with its unit: "400 Gbit/s"')


def _quantity(value: Any, units: Mapping[str, float], wanted: str) -> float:
    match = (
        re.fullmatch(r"\s*(\d{1,24}(?:\.\d{1,24})?)\s*(\S*)\s*", value) if isinstance(value, str) else None
    )
    if match is None or match[2] not in units:
        raise _WrongValueError(wanted)
    return float(match[1]) * units[match[2]] if "." in match[1] else int(match[1]) * units[match[2]]


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise _WrongValueError("text")
    return value


def _version(value: Any) -> str:
    if not isinstance(value, str) or version_of(value) is None or not value.isprintable():
        raise _WrongValueError('a version as text: "2.21.5"')
    return value


def _wire(value: Any) -> str:
    if value not in WIRES:
        raise _WrongValueError(f"one of {', '.join(WIRES)}")
    return str(value)


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(one, str) and one.isprintable() and one for one in value
    ):
        raise _WrongValueError("a list of names")
    return tuple(value)


@dataclass(frozen=True, kw_only=True)
class _Key:
    """One key of a profile."""

    table: str
    name: str
    field: str
    """Of ``Expectation``."""
    read: Callable[[Any], Any]
    comment: str

    @property
    def path(self) -> str:
        return f"{self.table}.{self.name}"


KEYS: tuple[_Key, ...] = tuple(
    _Key(table=table, name=name, field=field, read=read, comment=comment)
    for table, name, field, read, comment in (
        ("rdma", "ports", "rdma_ports", _count, "active ports, at least"),
        ("rdma", "rate", "rdma_rate", _rate, "of each port, at least"),
        ("rdma", "wire", "rdma_wire", _wire, "of all active ports"),
        ("rdma", "firmware", "rdma_firmware", _version, "the oldest"),
        ("gpu", "count", "gpu_count", _count, "at least"),
        ("gpu", "name", "gpu_name", _text, "a part of each GPU's name"),
        ("gpu", "memory", "gpu_memory", _bounded_size, "of each, at least"),
        ("gpu", "driver", "gpu_driver", _version, "the oldest"),
        ("pci", "width", "pci_width", _count, "lanes of each GPU and RDMA NIC, at least"),
        ("network", "mtu", "network_mtu", _count, "of each card that is up, at least"),
        ("network", "speed", "network_speed", _rate, "of the fastest card, at least"),
        ("limits", "memlock", "memlock", _size, "at least"),
        ("limits", "nofile", "nofile", _limit, "at least"),
        ("limits", "shm", "shm", _bounded_size, "size of /dev/shm, at least"),
        ("host", "processors", "processors", _count, "at least"),
        ("host", "memory", "memory", _bounded_size, "at least"),
        ("host", "kernel", "kernel", _version, "the oldest"),
        ("host", "modules", "modules", _names, "kernel modules that are loaded"),
        ("software", "nccl", "nccl", _version, "the oldest"),
        ("software", "mpi", "mpi", _text, "the family"),
        ("software", "mpi-version", "mpi_version", _version, "the oldest"),
        ("software", "python", "python", _version, "the oldest"),
    )
)
"""Every key of a profile, in the order in which they are written."""


def parse(document: Mapping[str, Any], where: str = "the profile") -> Expectation:
    """Return the profile that a TOML file says. Raises RequestError with all faults at once.

    ``where``: the file's name, for messages.
    """
    faults: list[Fault] = []
    values: dict[str, Any] = {}
    tables = {one.table for one in KEYS}
    for table, found in document.items():
        if table not in tables or not isinstance(found, Mapping):
            what = "not a table of a profile" if table not in tables else "not a table"
            faults.append(
                Fault(where=where, what=f"[{table}]: {what}", hint=f"tables: {', '.join(sorted(tables))}")
            )
            continue
        for name, value in found.items():
            faults += _take(values, table, name, value, where)
    if faults:
        raise RequestError(faults)
    return Expectation(**values)


def _take(values: dict[str, Any], table: str, name: str, value: Any, where: str) -> list[Fault]:
    key = next((one for one in KEYS if (one.table, one.name) == (table, name)), None)
    if key is None:
        known = ", ".join(one.name for one in KEYS if one.table == table)
        return [
            Fault(
                where=f"{where} {table}.{name}", what="not a key of a profile", hint=f"[{table}] has: {known}"
            )
        ]
    try:
        values[key.field] = key.read(value)
    except _WrongValueError as error:
        return [Fault(where=f"{where} {key.path}", what=f"{value!r} is not {error}")]
    return []


def to_toml(expectation: Expectation) -> str:
    """Return a profile as TOML, with a comment at each key; ``parse`` reads it back as it was."""
    lines = ["# What each host should have: ringleader doctor --expect THIS-FILE"]
    table = ""
    for key in KEYS:
        value = getattr(expectation, key.field)
        if value is None or value in ("", ()):
            continue
        if key.table != table:
            table = key.table
            lines += ["", f"[{table}]"]
        lines.append(f"{key.name} = {_written(key, value)}  # {key.comment}")
    return "\n".join(lines) + "\n"


def _written(key: _Key, value: Any) -> str:
    if value == UNLIMITED and key.read in (_size, _limit):
        return '"unlimited"'
    if key.read is _rate:
        unit = next((unit for unit in ("Gbit/s", "Mbit/s") if value % RATES[unit] == 0), "bit/s")
        return f'"{value / RATES[unit]:.0f} {unit}"'
    if key.read in (_size, _bounded_size):
        unit = next((unit for unit in ("TiB", "GiB", "MiB", "KiB") if value and value % SIZES[unit] == 0), "")
        return f'"{value // SIZES[unit]} {unit}"' if unit else str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_quoted(one) for one in value)}]"
    return str(value) if isinstance(value, int) else _quoted(str(value))


def _quoted(text: str) -> str:
    # JSON's strings are TOML's basic strings, but for the letters beyond U+FFFF, which JSON writes as two.
    return json.dumps(text, ensure_ascii=False)
