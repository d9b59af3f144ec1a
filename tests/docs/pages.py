"""Pages as their tests see them: blocks, the commands they show, and what those print."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from ringleader.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = r"# (\S+\.\w+)\n"
"""First line of a block that is a file."""


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str | None = None) -> list[tuple[str, str]]:
    """Return (language, body) of each block, or of those in one language."""
    return [found for found in FENCE.findall(text_of(page)) if language in (None, found[0])]


def commands(page: str) -> list[list[str]]:
    """Every `ringleader …` that a console block of the page shows, continuation lines joined."""
    lines = [line for _, body in blocks(page, "console") for line in body.replace("\\\n", " ").splitlines()]
    matches = [re.match(r"^[$#] (?:sudo )?(ringleader .*)", line) for line in lines]
    return [shlex.split(match[1], comments=True) for match in matches if match]


def ringleader(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run `ringleader` with these words: exit code, standard output."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0), capsys.readouterr().out


@dataclass(frozen=True, kw_only=True)
class Executed:
    """A page whose commands are run, in order; the block that follows one is what it prints."""

    page: str
    least: int
    """As many commands as must be run at least."""
    shows: int
    """Blocks that are compared with what was printed."""
    only: str = "ringleader "
    """What a command must have in it to be run."""
    language: str = ""
    """Of blocks with what is printed."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Language → name of the file that the first block in it is; empty: a comment in its first line."""
    stored: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    """Further files."""
    codes: frozenset[int] = frozenset((0,))
    has_fixed_columns: bool = True
    """False where columns are as wide as their widest row, which the page may leave out."""

    def steps(self) -> Iterator[tuple[str, str, str]]:
        """Yield (name, text, "") of each file and ("", command, what it prints) of each command."""
        text = text_of(self.page)
        found, written = list(FENCE.finditer(text)), set[str]()
        for block, after in pairwise([*found, None]):
            language, body = block.groups()
            name = self.files.get(language)
            if name == "" and (match := re.match(NAMED, body)):
                yield match[1], body, ""
            elif name and name not in written:
                written.add(name)
                yield name, body, ""
            elif language == "console":
                prints = ""
                if after and after[1] == self.language and not text[block.end() : after.start()].strip():
                    prints = "" if re.match(NAMED, after[2]) else after[2]
                lines = [line[2:] for line in body.splitlines() if line.startswith("$ ringleader")]
                for line in lines:
                    if self.only in line:
                        yield "", line, prints if line is lines[-1] else ""


def execute(row: Executed, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a page's commands in a directory; each must print what the page shows, parts in their order."""

    def spaced(text: str) -> str:
        return text if row.has_fixed_columns else " ".join(text.split()) + " "

    for name, make in row.stored.items():
        (place / name).write_text(make(), encoding="utf-8")
    count = shown = 0
    for name, text, prints in row.steps():
        if name:
            (place / name).write_text(text, encoding="utf-8")
            continue
        code, out = ringleader(shlex.split(text)[1:], capsys)
        assert code in row.codes, text
        count, shown, rest = count + 1, shown + bool(prints), "\n" + spaced(out)
        for part in map(spaced, prints.split("…\n") if prints else ()):
            assert part.rstrip() in rest, f"{text} does not print, here,\n{part}"
            rest = rest[rest.index(part.rstrip()) + len(part.rstrip()) :]
    assert count >= row.least and shown == row.shows, (count, shown)
