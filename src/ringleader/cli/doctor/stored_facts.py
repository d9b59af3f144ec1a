"""Facts of hosts in files, as ``ringleader doctor --facts`` prints them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ringleader.cli.options.option_checks import Faults, ReadText
from ringleader.errors import Fault, RequestError
from ringleader.fabric.facts import HostFacts, document, from_document
from ringleader.text_files import json_document

OPTION = "--facts-from"


def facts_document(by_host: Mapping[str, HostFacts]) -> Any:
    """Return facts as plain values: one host as an object, several as a list."""
    documents = [document(facts) for facts in by_host.values()]
    return documents[0] if len(documents) == 1 else documents


def facts_text(by_host: Mapping[str, HostFacts]) -> str:
    """Return facts as JSON, as they are printed."""
    return json.dumps(facts_document(by_host), indent=1, ensure_ascii=False) + "\n"


def read_facts(paths: Sequence[str], read: ReadText) -> dict[str, HostFacts]:
    """Return the facts of the files by host; two of one name are told apart by number.

    Raises RequestError with everything that is wrong in the files.
    """
    faults = Faults()
    found: list[HostFacts] = []
    for path in paths:
        text = faults.text_of(OPTION, path, read)
        if text is not None:
            found += _facts_of(path, text, faults.found)
    if not found and not faults.found:
        faults.add(OPTION, f"{', '.join(paths)}: no host is in it")
    if faults.found:
        raise RequestError(faults.found)
    by_host: dict[str, HostFacts] = {}
    for facts in found:
        name, number = facts.hostname or "host", 1
        while (label := name if number == 1 else f"{name} ({number})") in by_host:
            number += 1
        by_host[label] = facts
    return by_host


def _facts_of(path: str, text: str, faults: list[Fault]) -> list[HostFacts]:
    try:
        values: Any = json_document(text)
        documents = values if isinstance(values, list) else [values]
        return [from_document(HostFacts, one) for one in documents]
    except (ValueError, RecursionError) as error:
        hint = "write it with: ringleader doctor --facts"
        faults.append(Fault(where=OPTION, what=f"{path} holds no facts of a host: {error}", hint=hint))
    return []
