"""Steps: what ``lab up``, ``down`` and faults do, as values that can be printed before they are done.

``plan`` and ``network`` make them. The lab's block in ``/etc/hosts`` is added and removed in place, so that a
crash leaves a whole file: it may be a bind mount (containers), so it can't be replaced by renaming. Adding is
one append. Removing is one write of what stays, filled up with line ends to the old length, then a cut: a
crash between the two leaves blank lines at the end and nothing else.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ringleader.errors import LabError

ETC_HOSTS = Path("/etc/hosts")


@dataclass(frozen=True, kw_only=True)
class MakeDirectory:
    """A directory, made with its mode."""

    path: str
    mode: int = 0o755


@dataclass(frozen=True, kw_only=True)
class WriteFile:
    """A file, written whole."""

    path: str
    text: str
    mode: int = 0o644


@dataclass(frozen=True, kw_only=True)
class Command:
    """A program that must succeed."""

    argv: tuple[str, ...]
    append_to: str = ""
    """File that takes its standard output; empty: nobody wants it."""
    may_fail: bool = False
    """True where the thing to remove may have gone by itself."""


@dataclass(frozen=True, kw_only=True)
class HostsBlock:
    """A lab's lines in the machine's ``/etc/hosts``."""

    name: str
    text: str | None = None
    """``None``: they are removed."""


Step = MakeDirectory | WriteFile | Command | HostsBlock


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Steps that are shown to a person as one."""

    title: str
    steps: tuple[Step, ...]


def script(phases: Iterable[Phase]) -> str:
    """Return a shell script that does what these phases do."""
    parts = ["#!/bin/sh\nset -e\n"]
    for phase in phases:
        parts.append(f"\n# {phase.title}\n")
        parts += [f"{shell_line(step)}\n" for step in phase.steps]
    return "".join(parts)


def shell_line(step: Step) -> str:
    """Return the step as a line (or a here-document) of a shell script that does the same."""
    if isinstance(step, MakeDirectory):
        return f"mkdir -p -m {step.mode:o} {shlex.quote(step.path)}"
    if isinstance(step, WriteFile):
        end = "END_OF_FILE"
        return f"install -m {step.mode:o} /dev/stdin {shlex.quote(step.path)} <<'{end}'\n{step.text}{end}"
    if isinstance(step, HostsBlock):
        begin, end = _marks(step.name)
        if step.text is not None:
            return f"cat >> /etc/hosts <<'END_OF_BLOCK'\n{block(step.name, step.text)}END_OF_BLOCK"
        rest = shlex.join(["sed", f"/^{begin}/,/^{end}$/d", "/etc/hosts"])
        return f"rest=$({rest}) && printf '%s\\n' \"$rest\" > /etc/hosts"
    line = shlex.join(step.argv)
    if step.append_to:
        line += f" >> {shlex.quote(step.append_to)}"
    return f"{line} || true" if step.may_fail else line


def carry_out(*steps: Step, lock: int | None = None, timeout: float = 20.0) -> None:
    """Do these steps; LabError says which one failed and why.

    ``lock`` is the descriptor of the lab's lock: every child holds it as its standard input, so that the lock
    is free only when no child of a killed ``lab up`` is still at work.
    """
    for step in steps:
        if isinstance(step, MakeDirectory):
            Path(step.path).mkdir(mode=step.mode, parents=True, exist_ok=True)
            Path(step.path).chmod(step.mode)
        elif isinstance(step, WriteFile):
            descriptor = os.open(step.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, step.mode)
            with os.fdopen(descriptor, "w") as file:
                file.write(step.text)
        elif isinstance(step, Command):
            _run(step, lock=lock, timeout=timeout)
        elif step.text is None:
            remove_block(step.name)
        else:
            add_block(step.name, step.text)


def _run(step: Command, *, lock: int | None, timeout: float) -> None:
    shown = shlex.join(step.argv)
    stdin = subprocess.DEVNULL if lock is None else lock
    try:
        done = subprocess.run(step.argv, stdin=stdin, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise LabError(f"did not end within {timeout:.0f} s", where=shown)
    except OSError as error:
        raise LabError(str(error.strerror), where=shown)
    if done.returncode and not step.may_fail:
        said = done.stderr.decode(errors="replace").strip() or "it said nothing"
        hint = next((hint for sign, hint in _HINTS.items() if sign in said), "")
        raise LabError(f"exit code {done.returncode}: {said}", where=shown, hint=hint)
    if step.append_to:
        with Path(step.append_to).open("ab") as file:
            file.write(done.stdout)


_HINTS = {
    "Specified qdisc kind is unknown": "this kernel lacks that traffic shaper (tbf, or netem for --latency): "
    "modprobe sch_netem sch_tbf",
    "Operation not permitted": "a container needs the capabilities SYS_ADMIN and NET_ADMIN (--privileged)",
}
"""What a program says → what to do about it."""


def _marks(name: str) -> tuple[str, str]:
    """Return how a lab's first line begins, and its last line."""
    return f"# ringleader lab {name}: begin", f"# ringleader lab {name}: end"


def block(name: str, text: str, *, line_end_added: bool = False) -> str:
    """Return the marked block that holds ``text``."""
    note = " (after a line end that was missing)" if line_end_added else ""
    begin, end = _marks(name)
    return f"{begin}{note}\n{text}{end}\n"


def without_block(content: str, name: str) -> str:
    """Return the file without that lab's block, byte for byte as it was before the block was added."""
    begin, end = map(re.escape, _marks(name))
    whole = re.compile(
        rf"(?:\n{begin} \(after a line end that was missing\)\n|^{begin}\n)(?:.*\n)*?{end}\n",
        re.MULTILINE,
    )
    return whole.sub("", content)


def has_block(name: str, path: Path = ETC_HOSTS) -> bool:
    """Tell whether the lab's block is there."""
    try:
        return _marks(name)[0] in path.read_text()
    except FileNotFoundError:
        return False


def add_block(name: str, text: str, path: Path = ETC_HOSTS) -> None:
    """Append the lab's block."""
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        content = file.read()
        missing = bool(content) and not content.endswith(b"\n")
        added = ("\n" if missing else "") + block(name, text, line_end_added=missing)
        os.write(file.fileno(), added.encode())


def remove_block(name: str, path: Path = ETC_HOSTS) -> None:
    """Remove the lab's block where it is there."""
    if not has_block(name, path):
        return
    with path.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        content = file.read()
        stays = without_block(content.decode(), name).encode()
        if stays != content:
            os.pwrite(file.fileno(), stays + b"\n" * (len(content) - len(stays)), 0)
            os.ftruncate(file.fileno(), len(stays))
