"""Profiles of what every host must have: written from a host, as TOML, and hosts compared with them. Pure.

The keys are rows of ``checks.toml``, each of a quantity; ``quantities`` says how its values are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ringleader.errors import Fault, RequestError
from ringleader.fabric.check_result import CheckResult, failed, passed, skipped
from ringleader.fabric.checks.check import Check, checks_of
from ringleader.fabric.checks.quantities import NAMES, QUANTITIES, Quantity, WrongValueError
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.unread_areas import UnreadError, known

Profile = Mapping[str, Any]
"""Name of a quantity → its value, for those that are expected."""
KEYS: Mapping[str, Check] = {one.id.removeprefix("expect."): one for one in checks_of("Against the profile")}
"""Quantity → its row, in the order in which profiles are written. ``key`` of its rule: ``rdma.ports``."""


def judge_profile(facts: HostFacts, profile: Profile) -> tuple[CheckResult, ...]:
    """Return one verdict for each thing that is expected: pass, fail, or skip where it is not known."""
    found: list[CheckResult] = []
    for name, check in KEYS.items():
        if name in profile:
            try:
                results = list(_judged(known(facts), check, QUANTITIES[name], profile))
            except UnreadError as unread:
                results = [skipped(str(unread), expected=str(profile[name]))]
            found += [check.complete(one) for one in results]
    return tuple(found)


def _judged(facts: HostFacts, check: Check, quantity: Quantity, profile: Profile) -> Iterator[CheckResult]:
    unit, wanted = quantity.unit, profile[check.id.removeprefix("expect.")]
    value = quantity.read(facts)
    if "of" in check.rule:  # as many as are expected, the best: a host may have slower ports for its storage
        value = value[: profile.get(check.rule["of"]) or None]
    value, expected = quantity.reduced(value), unit.wanted(wanted)
    if isinstance(value, Mapping):
        low = {subject: one for subject, one in value.items() if not unit.meets(one, wanted)}
        for subject, one in low.items():
            yield failed(f"{one} {check.rule['noun']}", expected=expected, subject=subject)
        if not low:
            seen = f"{len(value)} links" if value else "not known"
            yield (passed if value else skipped)(seen, expected=expected)
        return
    good = None if value is None else unit.meets(value, wanted)
    seen = "not known" if value is None else unit.show(value)
    if unit is NAMES and value is not None:
        lost = [name for name in wanted if name not in value]
        seen = f"not loaded: {', '.join(lost)}" if lost else "all are loaded"
    yield (skipped if good is None else passed if good else failed)(seen, expected=expected)


def profile_of(facts: HostFacts) -> Profile:
    """Return the profile of a host as it is, to compare its peers with; of sizes 95%, in whole GiB."""
    values = {name: QUANTITIES[name] for name in KEYS}
    typical = {name: one.typical(one.reduced(one.read(facts))) for name, one in values.items()}
    return {name: value for name, value in typical.items() if value is not None and value not in ("", ())}


def parse(document: Mapping[str, Any], where: str = "the profile") -> Profile:
    """Return the profile that a TOML file says. Raises RequestError with all faults at once.

    ``where``: the file's name, for messages.
    """
    faults: list[Fault] = []
    values: dict[str, Any] = {}
    keys: dict[str, dict[str, str]] = {}
    for quantity, check in KEYS.items():
        table, _, name = check.rule["key"].partition(".")
        keys.setdefault(table, {})[name] = quantity
    for table, found in document.items():
        if table not in keys or not isinstance(found, Mapping):
            what = "not a table of a profile" if table not in keys else "not a table"
            hint = f"tables: {', '.join(sorted(keys))}"
            faults.append(Fault(where=where, what=f"[{table}]: {what}", hint=hint))
            continue
        for name, value in found.items():
            place = f"{where} {table}.{name}"
            if name not in keys[table]:
                hint = f"[{table}] has: {', '.join(keys[table])}"
                faults.append(Fault(where=place, what="not a key of a profile", hint=hint))
                continue
            try:
                values[keys[table][name]] = QUANTITIES[keys[table][name]].unit.parse(value)
            except WrongValueError as error:
                faults.append(Fault(where=place, what=f"{value!r} is not {error}"))
    if faults:
        raise RequestError(faults)
    return {name: values[name] for name in KEYS if name in values}


def to_toml(profile: Profile) -> str:
    """Return a profile as TOML, with a comment at each key; ``parse`` reads it back as it was."""
    lines = ["# What each host should have: ringleader doctor --expect THIS-FILE"]
    written = ""
    for quantity, check in KEYS.items():
        table, _, name = check.rule["key"].partition(".")
        if quantity not in profile:
            continue
        if table != written:
            written = table
            lines += ["", f"[{table}]"]
        lines.append(f"{name} = {QUANTITIES[quantity].unit.write(profile[quantity])}  # {check.what}")
    return "\n".join(lines) + "\n"
