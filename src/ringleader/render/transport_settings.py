"""Settings of transports as text, with their reasons: for a shell, for Docker, for a Pod, for a dry run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ringleader.fabric.settings.setting import Settings

Text = Callable[[str, Settings], str]
"""Takes the host's name and its settings."""


def _kubernetes(host: str, found: Settings) -> str:
    entry = _text(host, found, lambda name, value: f"- name: {name}\n  value: {json.dumps(value)}")
    return f"env:\n{entry}" if found.settings else f"{entry}env: []\n"


def settings_values(host: str, found: Settings) -> dict[str, Any]:
    """Return the same as plain values for JSON."""
    names = ("variable", "value", "library", "reason", "job_wide")
    return {
        "host": host,
        "settings": [{name: getattr(one, name) for name in names} for one in found.settings],
        "left_to_the_user": [vars(one) for one in found.left_to_the_user],
        "not_set": [vars(one) for one in found.not_set],
    }


FORMATS: Mapping[str, Text] = {
    # Lines for ``eval`` or ``source``.
    "shell": lambda host, found: _text(host, found, lambda name, value: f"export {name}={_quoted(value)}"),
    # A file for ``docker run --env-file`` and ``ringleader run --env-file``, which know no quotes.
    "docker-env": lambda host, found: _text(host, found, lambda name, value: f"{name}={_one_line(value)}"),
    # The ``env`` of a container, in YAML.
    "kubernetes": _kubernetes,
}
"""What ``render env --format`` takes."""


def dry_run_lines(found: Mapping[str, Settings]) -> list[str]:
    """Return one line for each setting and each that is missing. ``found``: by host or by rank."""
    lines = []
    for whose, settings in found.items():
        lines += [
            f"{whose}: {one.variable}={_quoted(one.value)}  # {_one_line(one.reason)}"
            for one in settings.settings
        ]
        lines += [f"{whose}: {line}" for line in _unset(settings)]
    return lines


def _text(host: str, found: Settings, assignment: Callable[[str, str], str]) -> str:
    if found.settings:
        lines = [f"# Variables for transports that fit {_one_line(host)}"]
    else:
        lines = [f"# Nothing needs to be set for the transports of {_one_line(host)}"]
    for one in found.settings:
        lines += [f"# {_one_line(one.reason)}", assignment(one.variable, one.value)]
    lines += [f"# {line}" for line in _unset(found)]
    return "\n".join([*lines, ""])


def _unset(found: Settings) -> Iterator[str]:
    for state, variables in (("left to you", found.left_to_the_user), ("not set", found.not_set)):
        for one in variables:
            yield f"{one.variable or 'variables for RDMA'} {state}: {_one_line(one.reason)}"


def _quoted(value: str) -> str:
    """Return a value for any shell: zsh takes ``=word`` for the path of a program unless it is quoted."""
    quoted = shlex.quote(value)
    return f"'{value}'" if quoted == value and not value.isalnum() else quoted


def _one_line(text: str) -> str:
    """Return text for a comment: nothing in it can end the line."""
    return "".join(one if one.isprintable() else "?" for one in text)
