"""Files of ``ringleader doctor``: facts that --facts wrote, and profiles of what hosts must have."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringleader.cli.options.option_checks import Faults, ReadText, unwritable, write_text
from ringleader.dataclass_json import document, from_document
from ringleader.errors import Fault, RefusedError, RequestError, refuse
from ringleader.fabric.checks.profile import Profile, parse, profile_of, to_toml
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.unread_areas import UnreadError, known
from ringleader.text_files import json_document, printed

WRITE, SINCE = "--write-expect", "--since"


def read_profile(path: str, read: ReadText) -> Profile:
    """Return the profile of a file. Raises RequestError with everything that is wrong in it."""
    faults = Faults()
    text = faults.text_of("--expect", path, read)
    if text is None:
        raise RequestError(faults.found)
    try:
        document = tomllib.loads(printed(text))
    except (ValueError, RecursionError) as error:
        hint = "ringleader doctor --write-expect FILE makes one"
        raise RequestError(f"is not TOML: {error}", where=path, hint=hint) from None
    return parse(document, path)


def check_new(path: str, *, force: bool) -> None:
    """Raise RequestError where a profile cannot be written, or a file would be lost."""
    faults = unwritable(WRITE, path)
    if not faults and path != "-" and Path(path).exists() and not force:
        what = f"{path} already exists"
        faults = [Fault(where=WRITE, what=what, hint="name another, or add --replace to write over it")]
    refuse(faults)


def write_profile(path: str, facts: HostFacts) -> None:
    """Write the profile of a host; ``-`` is standard output. RefusedError where a part is unknown."""
    try:
        profile = profile_of(known(facts))
    except UnreadError as unread:
        raise RefusedError(str(unread), where=WRITE, hint="give it more time: --start-timeout") from None
    write_text(path, to_toml(profile))


def facts_document(by_host: Mapping[str, HostFacts]) -> Any:
    """Return facts as plain values: one host as an object, several as a list."""
    documents = [document(facts) for facts in by_host.values()]
    return documents[0] if len(documents) == 1 else documents


def facts_text(by_host: Mapping[str, HostFacts]) -> str:
    """Return facts as JSON, as they are printed."""
    return json.dumps(facts_document(by_host), indent=1, ensure_ascii=False) + "\n"


def read_facts(paths: Sequence[str], read: ReadText, option: str = "--facts-from") -> dict[str, HostFacts]:
    """Return the facts of the files by host; two of one name are distinguished by number.

    ``option``: what named the files. Raises RequestError with everything that is wrong in them.
    """
    faults = Faults()
    found: list[HostFacts] = []
    for path in paths:
        text = faults.text_of(option, path, read)
        if text is not None:
            found += _facts_of(option, path, text, faults.found)
    if not found and not faults.found:
        faults.add(option, f"{', '.join(paths)}: no host is in it")
    refuse(faults.found)
    by_host: dict[str, HostFacts] = {}
    for facts in found:
        name, number = facts.hostname or "host", 1
        while (label := name if number == 1 else f"{name} ({number})") in by_host:
            number += 1
        by_host[label] = facts
    return by_host


def read_earlier(path: str, read: ReadText, hosts: Mapping[str, HostFacts]) -> dict[str, HostFacts]:
    """Return what was read of hosts before, by their names. Raises RequestError where it is of none."""
    found = {one.hostname: one for one in read_facts((path,), read, SINCE).values()}
    earlier = {
        host: found[facts.hostname]
        for host, facts in hosts.items()
        if facts.hostname in found and found[facts.hostname].clock.read_at < facts.clock.read_at
    }
    if hosts and not earlier:
        what = f"{path}: no facts of {', '.join(hosts)} that were read before"
        raise RequestError([Fault(where=SINCE, what=what, hint="write them with: ringleader doctor --facts")])
    return earlier


def _facts_of(option: str, path: str, text: str, faults: list[Fault]) -> list[HostFacts]:
    try:
        values: Any = json_document(text)
        documents = values if isinstance(values, list) else [values]
        return [from_document(HostFacts, one) for one in documents]
    except (ValueError, RecursionError) as error:
        hint = "write it with: ringleader doctor --facts"
        faults.append(Fault(where=option, what=f"{path} holds no facts of a host: {error}", hint=hint))
    return []
