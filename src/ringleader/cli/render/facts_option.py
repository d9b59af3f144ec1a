"""``--facts-from FILE``: a host as ``ringleader doctor --facts`` wrote it, in place of this one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ringleader import text_files
from ringleader.errors import RefusedError, RequestError
from ringleader.option_fields import option

if TYPE_CHECKING:
    from ringleader.fabric.facts import HostFacts

OPTION_NAME = "--facts-from"
READ_SECONDS = 60.0
"""What reading this host may take; a busy one may need more than the doctor's few, and is not guessed at."""


def facts_from_option() -> Any:
    """Return the field of ``--facts-from FILE``."""
    return option(
        "A host that ringleader doctor --facts wrote; - reads standard input. [default: this host]",
        OPTION_NAME,
        metavar="FILE",
    )


@contextmanager
def host_facts(path: str | None) -> Iterator[HostFacts]:
    """Give the facts of a file, or of this host. Raises RequestError for a file that has none.

    Inside, wanting a value that was not read in time raises RefusedError: it is not known to be absent.
    """
    from ringleader.fabric.unread_areas import UnreadError, known

    try:
        yield known(_facts(path))
    except UnreadError as unread:
        where, hint = path or "this host", "read it again when the host is less busy"
        raise RefusedError(str(unread), where=where, hint=hint) from None


def _facts(path: str | None) -> HostFacts:
    if path is None:
        from ringleader.fabric.readers import read_host

        return read_host(environ=os.environ, seconds=READ_SECONDS)
    from ringleader.cli.doctor.stored_facts import read_facts

    found = read_facts([path], _standard_input_or_file)
    if len(found) > 1:
        hint = f"it holds {', '.join(list(found)[:5])}; doctor -H HOST --facts writes one"
        raise RequestError(
            f"{path} holds {len(found)} hosts, and one is wanted", where=OPTION_NAME, hint=hint
        )
    return next(iter(found.values()))


def _standard_input_or_file(path: str) -> str:
    return sys.stdin.read(text_files.LARGEST) if path == "-" else text_files.read_text(path)
