"""Stacks of Pythons as `faulthandler` writes them: read, and those of equal ranks grouped. Pure.

Which rank the others wait for is in `hang_verdict`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ringleader.agents.script_watch import LIBRARY
from ringleader.value_class import dataclass

_THREAD = re.compile(r"(?P<current>Current thread|Thread) 0x[0-9a-fA-F]+.* \(most recent call first\):$")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
_OURS = "script_watch.py"
SHOWN = 40
"""Lines of one stack that are shown."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a script that a rank is at."""

    file: str
    line: int
    """0: unknown."""
    function: str

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line or '?'} in {self.function}"


@dataclass(frozen=True, kw_only=True)
class Stack:
    """One process of a rank."""

    rank: int
    pid: int
    is_first: bool
    """It is the first Python of its rank: not a worker that a script started."""
    main: tuple[Line, ...]
    """Frames of its main thread, the innermost first; empty: it runs no Python at the moment."""
    others: tuple[tuple[Line, ...], ...] = ()
    """Those of its other threads."""

    @property
    def at(self) -> Line | None:
        """The innermost line of the script itself."""
        return next((line for line in self.main if not LIBRARY.search(line.file)), None)


def line_of(words: Any) -> Line | None:
    """Return a line of a rank's record, ``[file, line, function]``; ``None`` for anything else."""
    if not isinstance(words, list) or len(words) != 3 or not isinstance(words[0], str):
        return None
    line = words[1] if type(words[1]) is int and words[1] > 0 else 0
    return Line(file=words[0], line=line, function=str(words[2])[:100])


def parse(text: str) -> list[tuple[Line, ...]]:
    """Return the threads of a dump, the main thread first; without the thread of ours that answers agents.

    `faulthandler` writes the newest thread first, the main one last. It leaves out all beyond a hundred:
    then the one that got the signal counts, which is the main one as a rule.
    """
    threads: list[list[Line]] = []
    current, is_cut = 0, False
    for text_line in text.splitlines():
        if match := _THREAD.match(text_line):
            current = len(threads) if match["current"].startswith("C") else current
            threads.append([])
        elif threads and (match := _FRAME.match(text_line)):
            line = int(match["line"]) if match["line"].isdigit() else 0
            threads[-1].append(Line(file=match["file"], line=line, function=match["function"]))
        else:
            is_cut = is_cut or text_line == "..."
    if not threads:
        return []
    main = threads.pop(current if is_cut else -1)
    others = [one for one in threads if not any(line.file.endswith(_OURS) for line in one)]
    return [tuple(main), *(tuple(one) for one in others)]


def stacks_of(rank: int, pythons: Any) -> list[Stack]:
    """Return the stacks that a rank's agent has sent; what cannot be read is left out."""
    found = list[Stack]()
    for python in pythons if isinstance(pythons, list) else ():
        if isinstance(python, dict) and type(python.get("pid")) is int:
            threads = parse(str(python.get("text", "")))
            if threads:
                main, others = threads[0], tuple(threads[1:])
                one = Stack(rank=rank, pid=python["pid"], is_first=not found, main=main, others=others)
                found.append(one)
    return found


def groups(stacks: Iterable[Stack]) -> list[list[Stack]]:
    """Return stacks by where their main threads are: ranks before their workers, the rarest place first."""
    by_place: dict[tuple[bool, tuple[Line, ...]], list[Stack]] = {}
    for stack in stacks:
        by_place.setdefault((not stack.is_first, stack.main), []).append(stack)
    ordered = sorted(by_place.items(), key=lambda item: (item[0][0], len(item[1]), item[1][0].rank))
    return [found for _key, found in ordered]


def text_of(found: list[Stack], named: str) -> str:
    """Return a group as text: who, then the stack of the first."""
    first = found[0]
    if not first.is_first:
        pids = ", ".join(str(stack.pid) for stack in found[:8]) + (" …" if len(found) > 8 else "")
        named += f", {'process' if len(found) == 1 else 'processes'} {pids} beside the script"
    lines = [f"{named}:", *_lines_of(first.main)]
    if (more := len(lines) - SHOWN) > 0:
        # The outermost frames are the script's, the innermost say what it does.
        head = SHOWN // 2
        lines = [*lines[:head], f"    and {more} more lines, then", *lines[head + more :]]
    others = [line for thread in first.others for line in ("  another thread:", *_lines_of(thread))]
    if any(one.others != first.others for one in found):
        others.insert(0, f"  other threads, of rank {first.rank}; those of the others differ:")
    room = max(0, SHOWN - len(lines))
    cut = [f"    and {len(others) - room} more lines of other threads"] if len(others) > room else []
    return "\n".join((*lines, *others[:room], *cut))


def _lines_of(thread: tuple[Line, ...]) -> list[str]:
    shown = [one for one in thread if not one.file.startswith("<frozen importlib.")]
    lines = [f'    File "{one.file}", line {one.line or "?"} in {one.function}' for one in shown]
    return lines if thread else ["    no Python code runs"]


def outlier(found: Mapping[int, Stack]) -> tuple[list[int], list[int]]:
    """Return the ranks at the rarest place and all others; two empty lists where no place is the rarest.

    ``found``: the first process of each rank.
    """
    places: dict[tuple[Line, ...], list[int]] = {}
    for rank, stack in found.items():
        places.setdefault(stack.main, []).append(rank)
    ordered = sorted(places.values(), key=len)
    if len(ordered) < 2 or len(ordered[0]) == len(ordered[1]):
        return [], []
    return ordered[0], sorted(rank for ranks in ordered[1:] for rank in ranks)
