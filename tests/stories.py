"""Stories: tests that are told in their own language, one line for what happens and what is then seen.

A file of stories has for each its title after ``#``; ``for NAMES`` with one row of values after each ``*``
where it is told several times, with ``$NAME`` for the value and ``-`` for nothing; then lines of
``happening; happening | fact | fact``, which may continue in lines that begin with ``|``. A happening is a
verb and its words. A fact is a name and what it is, where ``…`` stands for any text.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any


def stories(path: Path) -> dict[str, list[str]]:
    """The stories of a file: title → lines; those with rows once for each row."""
    found: dict[str, list[str]] = {}
    for title, lines in _told(path.read_text(encoding="utf-8")):
        assert title not in found, f"two stories are called {title}"
        found[title] = lines
    return found


def _told(text: str) -> Iterator[tuple[str, list[str]]]:
    for told in re.split(r"^# ", text, flags=re.MULTILINE)[1:]:
        title, *lines = re.sub(r"\n\|", " |", told.strip()).splitlines()
        if not lines[0].startswith("for "):
            yield title, lines
            continue
        names = lines[0].removeprefix("for ").split(", ")
        rows = [line.removeprefix("* ").split(" / ") for line in lines if line.startswith("*")]
        body = "\n".join(line for line in lines[1:] if not line.startswith("*"))
        for row in rows:
            values = dict(zip(names, ("" if value == "-" else value for value in row), strict=True))
            found = re.sub(r"\$(\w+)", lambda match, values=values: values[match[1]], body)
            yield f"{title} [{' / '.join(row)}]", found.splitlines()


def happenings_and_facts(line: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Verbs with their words, and what is then seen."""
    happenings, *facts = (part.strip() for part in line.split(" |"))
    found = [one.strip().partition(" ") for one in happenings.split("; ")]
    return [(verb, rest) for verb, _, rest in found], facts


def check(line: str, facts: Iterable[str], see: Callable[[str], Any]) -> None:
    """Compare facts with what is seen under their names."""
    for fact in facts:
        name, _, expected = fact.partition(" ")
        value = see(name)
        seen = value if isinstance(value, str) else json.dumps(value, sort_keys=True).replace("null", "none")
        pattern = ".*".join(re.escape(part) for part in expected.replace("\\n", "\n").split("…"))
        assert re.fullmatch(pattern, seen, re.DOTALL), f"{line}\n{name} {seen}"


def fields(words: Iterable[str]) -> dict[str, Any]:
    """``NAME=VALUE``, the value as JSON or else text; a name alone is true."""
    parts = (word.partition("=") for word in words)
    return {name: value_of(text) if equal else True for name, equal, text in parts}


def value_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
