"""``--facts-from FILE``: a host as ``ringleader doctor --facts`` wrote it, in place of this one."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from ringleader import text_files
from ringleader.cli.typed_command import Option
from ringleader.errors import RequestError

if TYPE_CHECKING:
    from ringleader.fabric.facts import HostFacts

OPTION_NAME = "--facts-from"
FACTS_FROM = Option(
    [OPTION_NAME],
    metavar="FILE",
    help="A host that ringleader doctor --facts wrote; - reads standard input. [default: this host]",
)


def host_facts(path: str | None) -> HostFacts:
    """Return the facts of a file, or of this host. Raises RequestError for a file that has none."""
    from ringleader.fabric.facts import HostFacts, from_document

    if path is None:
        from ringleader.fabric.readers import read_host

        return read_host(environ=os.environ)
    try:
        text = sys.stdin.read(text_files.LARGEST) if path == "-" else text_files.read_text(path)
        values = json.loads(text)
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror or error}", where=OPTION_NAME) from None
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        raise _no_facts(path, f"is not JSON ({error})") from None
    try:
        return from_document(HostFacts, values)
    except (ValueError, TypeError, RecursionError) as error:
        raise _no_facts(path, f"has no facts of a host: {error}") from None


def _no_facts(path: str, what: str) -> RequestError:
    hint = f"write them with: ringleader doctor --facts > {path if path != '-' else 'FILE'}"
    return RequestError(f"{path} {what}", where=OPTION_NAME, hint=hint)
