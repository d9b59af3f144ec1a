"""Profiles of hosts, what each must have, in files: ``--expect`` and ``--write-expect``."""

from __future__ import annotations

import tomllib
from pathlib import Path

from ringleader.cli.options.option_checks import Faults, ReadText, unwritable, write_text
from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.fabric.checks.expectation import Expectation, expectation_of
from ringleader.fabric.checks.expectation_file import parse, to_toml
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.unread_areas import UnreadError, known
from ringleader.text_files import printed

WRITE = "--write-expect"


def read_profile(path: str, read: ReadText) -> Expectation:
    """Return the profile of a file. Raises RequestError with everything that is wrong in it."""
    faults = Faults()
    text = faults.text_of("--expect", path, read)
    if text is None:
        raise RequestError(faults.found)
    try:
        document = tomllib.loads(printed(text))
    except (ValueError, RecursionError) as error:
        hint = "ringleader doctor --write-expect FILE makes one"
        raise RequestError(Fault(where=path, what=f"is not TOML: {error}", hint=hint)) from None
    return parse(document, path)


def check_new(path: str, *, force: bool) -> None:
    """Raise RequestError where a profile cannot be written, or a file would be lost."""
    faults = unwritable(WRITE, path)
    if not faults and path != "-" and Path(path).exists() and not force:
        what = f"{path} is there already"
        faults = [Fault(where=WRITE, what=what, hint="name another, or add --replace to write over it")]
    if faults:
        raise RequestError(faults)


def write_profile(path: str, facts: HostFacts) -> None:
    """Write the profile of a host; ``-`` is standard output. RefusedError where a part is unknown."""
    try:
        profile = expectation_of(known(facts))
    except UnreadError as unread:
        raise RefusedError(str(unread), where=WRITE, hint="give it more time: --start-timeout") from None
    write_text(path, to_toml(profile))
