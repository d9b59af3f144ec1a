"""Settings of transports as text, with their reasons: for a shell, for Docker, for a Pod, for a dry run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ringleader.fabric.settings.setting import Settings, UnsetVariable

Text = Callable[[str, Settings], str]
"""Takes the host's name and its settings."""


def shell_text(host: str, found: Settings) -> str:
    """Return lines for ``eval`` or ``source``."""
    return _text(host, found, lambda name, value: f"export {name}={_quoted(value)}")


def env_file_text(host: str, found: Settings) -> str:
    """Return a file for ``docker run --env-file`` and ``ringleader run --env-file``, which know no quotes."""
    return _text(host, found, lambda name, value: f"{name}={_one_line(value)}")


def kubernetes_text(host: str, found: Settings) -> str:
    """Return the ``env`` of a container, in YAML."""
    entry = _text(host, found, lambda name, value: f"- name: {name}\n  value: {json.dumps(value)}")
    return f"env:\n{entry}" if found.settings else f"{entry}env: []\n"


def settings_values(host: str, found: Settings) -> dict[str, Any]:
    """Return the same as plain values for JSON."""
    return {
        "host": host,
        "settings": [
            {
                "variable": one.variable,
                "value": one.value,
                "library": one.library,
                "reason": one.reason,
                "job_wide": one.job_wide,
            }
            for one in found.settings
        ],
        "left_to_the_user": [vars(one) for one in found.left_to_the_user],
        "not_set": [vars(one) for one in found.not_set],
    }


def json_text(host: str, found: Settings) -> str:
    """Return ``settings_values`` as it is printed."""
    return json.dumps(settings_values(host, found), indent=2, ensure_ascii=False) + "\n"


FORMATS: Mapping[str, Text] = {
    "shell": shell_text,
    "docker-env": env_file_text,
    "kubernetes": kubernetes_text,
    "json": json_text,
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
        lines += [f"{whose}: {line}" for line in _unset("left to you", settings.left_to_the_user)]
        lines += [f"{whose}: {line}" for line in _unset("not set", settings.not_set)]
    return lines


def _text(host: str, found: Settings, assignment: Callable[[str, str], str]) -> str:
    if found.settings:
        lines = [f"# Variables for transports that fit {_one_line(host)}"]
    else:
        lines = [f"# Nothing needs to be set for the transports of {_one_line(host)}"]
    for one in found.settings:
        lines += [f"# {_one_line(one.reason)}", assignment(one.variable, one.value)]
    lines += [f"# {line}" for line in _unset("left to you", found.left_to_the_user)]
    lines += [f"# {line}" for line in _unset("not set", found.not_set)]
    return "\n".join([*lines, ""])


def _unset(state: str, variables: tuple[UnsetVariable, ...]) -> Iterator[str]:
    for one in variables:
        yield f"{one.variable or 'variables for RDMA'} {state}: {_one_line(one.reason)}"


def _quoted(value: str) -> str:
    """Return a value for any shell: zsh takes ``=word`` for the path of a program unless it is quoted."""
    quoted = shlex.quote(value)
    return f"'{value}'" if quoted == value and not value.isalnum() else quoted


def _one_line(text: str) -> str:
    """Return text for a comment: nothing in it can end the line."""
    return "".join(one if one.isprintable() else "?" for one in text)
