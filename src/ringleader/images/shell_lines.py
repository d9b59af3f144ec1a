"""Commands of one step as a chain that stops at the first failure, laid out to be read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ringleader.images.instructions import Run

WIDTH = 100
"""Columns after which a command goes on in a further line."""
INDENT = "        "
SEPARATORS = (";", "&", "||")
LINES = "printf '%s\\n'"
"""How a command begins that writes lines to a file (``steps.write``)."""


def layer(step: Run, *, comment: str, first: str, further: str) -> Iterator[str]:
    """Yield a step's lines after an empty one, each begun as its place wants it; none without commands."""
    if not step.commands:
        return
    yield ""
    if step.why:
        yield f"{comment}{step.why}"
    head, *rest = chain(step.commands)
    yield f"{first}{head}"
    yield from (f"{further}{line}" for line in rest)


def chain(commands: Iterable[str]) -> tuple[str, ...]:
    """Return ``first && second && …`` as lines; every line but the last ends with a backslash.

    A command that is a list itself (``a; b``, ``a || b``) is put in braces, so that it counts as one.
    ValueError for a newline in a command.
    """
    lines: list[str] = []
    for command in commands:
        if "\n" in command or "\r" in command or not command.strip():
            raise ValueError(f"a command must be one line: {command!r}")
        first, *further = _wrapped(_grouped(command))
        lines += [f"&& {first}" if lines else first, *(f"{INDENT}{line}" for line in further)]
    return tuple(f"{line} \\" for line in lines[:-1]) + tuple(lines[-1:])


def _grouped(command: str) -> str:
    top = [word for word, depth in _words(command) if depth == 0]
    if any(word in SEPARATORS or (word.endswith((";", "&")) and not word.endswith("&&")) for word in top):
        return f"{{ {command.rstrip(' ;')}; }}"
    return command


def _wrapped(command: str) -> Iterator[str]:
    """Yield a command in lines of about ``WIDTH``, broken at blanks outside quotes.

    The lines of a file that is written are lines of their own.
    """
    line, quoted_only = "", command.startswith(LINES)
    for word, _ in _words(command):
        full = quoted_only or len(line) + len(word) >= WIDTH
        # A line that begins with # would be a comment of the Dockerfile; with % a section of a definition.
        if line not in ("", "printf") and full and word[0] not in "#%" and not line.endswith(">"):
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def _words(command: str) -> Iterator[tuple[str, int]]:
    """Yield the words between blanks outside quotes, and how many ``(`` and ``{`` are open before each."""
    word, quote, depth, before, escaped = "", "", 0, 0, False
    for sign in command:
        if escaped:
            escaped = False
        elif quote:
            escaped = sign == "\\" and quote == '"'
            quote = "" if sign == quote else quote
        elif sign == "\\":
            escaped = True
        elif sign in "'\"":
            quote = sign
        elif sign == " ":
            if word:
                yield word, before
            word, before = "", depth
            continue
        elif sign in "({":
            depth += 1
        elif sign in ")}":
            depth -= 1
        word += sign
    yield word, before
