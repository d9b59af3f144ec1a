"""Command lines and what they print: text files with `$ words`, and below them what a user sees.

RINGLEADER_RENEW_GOLDENS=1 writes anew what is below the words; add a line `$ words` for a new case.
"""

import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
CASE = re.compile(r"^((?:# .*\n)*\$.*\n)", re.MULTILINE)
"""The words, with the comment above them."""


def cases(name: str) -> list[str]:
    """Return the words of every case."""
    return [one.splitlines()[-1][1:] for one in CASE.findall((GOLDEN / name).read_text())]


def check(name: str, call: Callable[..., tuple[int, str, str]], *before: str, after: str = "") -> None:
    """Call all words between these and compare what they print; an exit code is shown where it is not 0."""

    def shown(words: str) -> str:
        code, out, err = call(*before, *shlex.split(words), *after.split())
        text = f"{out}{err}{f'[{code}]' if code else ''}\n"
        return text.replace(shlex.quote(sys.executable), "PYTHON").replace(str(Path.cwd()), ".")

    file = GOLDEN / name
    heads = CASE.findall(file.read_text())
    made = "".join(head + shown(words) for head, words in zip(heads, cases(name), strict=True))
    if os.environ.get("RINGLEADER_RENEW_GOLDENS") == "1":
        file.write_text(made)
    assert made == file.read_text(), "RINGLEADER_RENEW_GOLDENS=1 writes it"
