"""Words and files that name hosts become ``Host`` values. Pure: text in, hosts and faults out.

In ``-H`` a bare name is one slot, as with Open MPI; in a hostfile a bare name takes as many ranks as the
host has cores. A host that is named again adds its slots, and there a bare name counts as one: a file that
repeats a name for each slot (as PBS writes it) is read as it is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv6Address

from ringleader.errors import Fault
from ringleader.option_fields import WrongValueError
from ringleader.plan.job import Host
from ringleader.value_class import dataclass

_LARGEST = 1_000_000
_LONGEST_NAME = 253
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_USER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.\\+-]*")
_EQUALS = re.compile(r"\s+=\s*|=\s+")
_KEYS = ("slots", "max_slots", "max-slots")


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """What a text named, and everything that is wrong with it."""

    hosts: tuple[Host, ...] = ()
    """In the order of first mention; a host that is named twice has the sum of its slots."""
    faults: tuple[Fault, ...] = ()
    bare: tuple[str, ...] = ()
    """Names of a list that say nothing of slots, and so have one each."""


def parse_host_list(text: str, where: str = "-H") -> Parsed:
    """Read ``h1:2,alice@h2,[fe80::1]:4``."""
    hosts: list[Host] = []
    faults: list[Fault] = []
    bare: list[str] = []
    for number, word in enumerate((word.strip() for word in text.split(",")), start=1):
        try:
            if not word:
                raise WrongValueError("empty", "write h1:2,h2:2 without a comma at either end")
            name, slots = _name_and_slots(word)
        except WrongValueError as bad:
            place = f"{where} {word[:80]}" if word.isprintable() and word else f"{where} entry {number}"
            faults.append(Fault(where=place, what=bad.what, hint=bad.hint))
        else:
            hosts.append(Host(name=name, slots=1 if slots is None else slots))
            bare += [name] if slots is None else []
    return Parsed(hosts=merge_hosts(hosts), faults=tuple(faults), bare=tuple(bare))


def parse_hostfile(text: str, where: str = "hostfile") -> Parsed:
    """Read a hostfile in Open MPI's (``h1 slots=2``) or MPICH's words (``h1:2``), line by line.

    ``where`` is the file's name, used in ``file:line``. ``#`` begins a comment.
    """
    hosts: list[Host] = []
    faults: list[Fault] = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        words = _EQUALS.sub("=", line.partition("#")[0]).split()
        if not words:
            continue
        try:
            hosts.append(_host_of_line(words))
        except WrongValueError as bad:
            faults.append(Fault(where=f"{where}:{number}", what=bad.what, hint=bad.hint))
    if not hosts and not faults:
        faults.append(Fault(where=where, what="names no host", hint="write one host a line: h1 slots=2"))
    return Parsed(hosts=merge_hosts(hosts), faults=tuple(faults))


def is_loopback(name: str) -> bool:
    """Say whether a host's name or address means the machine itself on every machine."""
    return name in ("localhost", "::1") or name.startswith("127.")


def merge_hosts(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """Join hosts of one name, in the order of first mention."""
    by_name: dict[str, Host] = {}
    for host in hosts:
        known = by_name.get(host.name)
        by_name[host.name] = host if known is None else add_slots(known, host)
    return tuple(by_name.values())


def add_slots(one: Host, other: Host) -> Host:
    """Return a host that is mentioned twice: slots add up, and a bare mention counts as one slot.

    Limits add up too; a mention without a limit lifts it.
    """
    limit = None
    if one.max_slots is not None and other.max_slots is not None:
        limit = one.max_slots + other.max_slots
    slots = sum(1 if count is None else count for count in (one.slots, other.slots))
    return replace(one, slots=slots, max_slots=limit)


def apply_torchrun(
    hosts: tuple[Host, ...], *, nnodes: str | None, nproc_per_node: str | None
) -> tuple[tuple[Host, ...], int | None, tuple[Fault, ...]]:
    """Read torchrun's ``--nnodes`` and ``--nproc-per-node``: (hosts, ranks, faults).

    The first ``nnodes`` hosts take part, ``nproc_per_node`` ranks on each. Without hosts there is one
    machine, this one, so ``nnodes`` can only be 1. Ranks are ``None`` where the options leave it open.
    """
    faults: list[Fault] = []
    nodes = _count(
        "--nnodes", nnodes, "elastic ranges such as 1:4 are not supported: give one number", faults
    )
    hint = "words such as gpu or auto are not supported: give one number"
    local = _count("--nproc-per-node", nproc_per_node, hint, faults)
    if nodes is not None and nodes > max(1, len(hosts)):
        names = ", ".join(host.name for host in hosts) or "this machine only"
        hint = "name more with -H or --hostfile"
        faults.append(Fault(where="--nnodes", what=f"{nodes} hosts asked for, there are: {names}", hint=hint))
    if faults:
        return hosts, None, tuple(faults)
    chosen = hosts[:nodes] if nodes is not None else hosts
    if local is None:
        return chosen, None, ()
    chosen = tuple(replace(host, slots=local, max_slots=None) for host in chosen)
    return chosen, local * max(1, len(chosen)), ()


def _count(option: str, text: str | None, hint: str, faults: list[Fault]) -> int | None:
    """Read a count of at least 1, or note a fault."""
    if text is None:
        return None
    try:
        return _number(text)
    except WrongValueError as bad:
        faults.append(Fault(where=option, what=bad.what, hint=hint))
        return None


def _host_of_line(words: list[str]) -> Host:
    """Read the words of one line of a hostfile."""
    name, slots = _name_and_slots(words[0])
    given: dict[str, int] = {} if slots is None else {"slots": slots}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if key not in _KEYS or not equals:
            raise WrongValueError(f"{word!r} is not understood", "a line is: NAME slots=2, or NAME:2")
        key = key.replace("-", "_")
        if key in given:
            raise WrongValueError(f"{key} is given twice")
        given[key] = _number(value, key)
    limit = given.get("max_slots")
    if limit is not None and limit < given.get("slots", 1):
        raise WrongValueError(f"max_slots={limit} is below slots={given.get('slots', 1)}")
    return Host(name=name, slots=given.get("slots"), max_slots=limit)


def _name_and_slots(word: str) -> tuple[str, int | None]:
    """Split ``name``, ``name:2``, ``user@name:2``, ``[fe80::1]:2`` or ``fe80::1``."""
    user, at, rest = word.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise WrongValueError(f"{user!r} is not a user name", "write user@host")
    if rest.startswith("["):
        name, bracket, after = rest[1:].partition("]")
        if not bracket or ":" not in name or (after and not after.startswith(":")):
            raise WrongValueError(f"{rest!r} is not an IPv6 address with slots", "write [fe80::1]:2")
        slots = after[1:] if after else None
    elif rest.count(":") > 1:
        name, slots = rest, None
    else:
        name, colon, after = rest.partition(":")
        slots = after if colon else None
    _check_name(name)
    return user + at + name, None if slots is None else _number(slots)


def _check_name(name: str) -> None:
    """Raise where a word can be neither a host's name nor its address."""
    if ":" in name:
        try:
            IPv6Address(name)
        except ValueError:
            raise WrongValueError(
                f"{name!r} is not an IPv6 address", "write [fe80::1]:2 for 2 slots"
            ) from None
    elif not name:
        raise WrongValueError("a host's name is missing", "write h1:2")
    elif not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise WrongValueError(
            f"{name[:80]!r} is not a host name", "names hold letters, digits, dots, hyphens, underscores"
        )


def _number(text: str, what: str = "slots") -> int:
    """Read a count from 1 to a million."""
    if not (text.isascii() and text.isdigit()):
        raise WrongValueError(f"{text[:80]!r} is not a number of {what}", "write an integer from 1")
    value = int(text[:20])
    if value < 1:
        raise WrongValueError(
            f"{value} {what}", "a host takes at least 1 rank; leave the host out to give it none"
        )
    if value > _LARGEST:
        raise WrongValueError(f"{text[:20]} {what} are more than any host has", f"at most {_LARGEST}")
    return value
