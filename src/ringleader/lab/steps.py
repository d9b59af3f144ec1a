"""Steps: what ``up`` and ``down`` do, as values that can be printed before they are done."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ringleader.errors import LabError
from ringleader.lab import etc_hosts


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
class AddHostsBlock:
    """A lab's lines in the machine's ``/etc/hosts``."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class RemoveHostsBlock:
    """The end of a lab's lines in ``/etc/hosts``."""

    name: str


Step = MakeDirectory | WriteFile | Command | AddHostsBlock | RemoveHostsBlock


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Steps that are shown to a person as one."""

    title: str
    steps: tuple[Step, ...]


def script(phases: tuple[Phase, ...]) -> str:
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
    if isinstance(step, AddHostsBlock):
        end = "END_OF_BLOCK"
        return f"cat >> /etc/hosts <<'{end}'\n{etc_hosts.block(step.name, step.text)}{end}"
    if isinstance(step, RemoveHostsBlock):
        begin, end = etc_hosts.marks(step.name)
        rest = shlex.join(["sed", f"/^{begin}/,/^{end}$/d", "/etc/hosts"])
        return f"rest=$({rest}) && printf '%s\\n' \"$rest\" > /etc/hosts"
    line = shlex.join(step.argv)
    if step.append_to:
        line += f" >> {shlex.quote(step.append_to)}"
    return f"{line} || true" if step.may_fail else line


def carry_out(step: Step, *, lock: int | None, timeout: float = 20.0) -> None:
    """Do one step; LabError says which one failed and why.

    ``lock`` is the descriptor of the lab's lock: every child holds it as its standard input, so that the lock
    is free only when no child of a killed ``lab up`` is still at work.
    """
    if isinstance(step, MakeDirectory):
        Path(step.path).mkdir(mode=step.mode, parents=True, exist_ok=True)
        Path(step.path).chmod(step.mode)
    elif isinstance(step, WriteFile):
        descriptor = os.open(step.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, step.mode)
        with os.fdopen(descriptor, "w") as file:
            file.write(step.text)
    elif isinstance(step, AddHostsBlock):
        etc_hosts.add_block(step.name, step.text)
    elif isinstance(step, RemoveHostsBlock):
        etc_hosts.remove_block(step.name)
    else:
        _run(step, lock=lock, timeout=timeout)


def _run(step: Command, *, lock: int | None, timeout: float) -> None:
    shown = shlex.join(step.argv)
    try:
        done = subprocess.run(
            step.argv,
            stdin=subprocess.DEVNULL if lock is None else lock,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"did not end within {timeout:.0f} s", where=shown)
    except OSError as error:
        raise LabError(str(error.strerror), where=shown)
    if done.returncode and not step.may_fail:
        said = done.stderr.decode(errors="replace").strip() or "it said nothing"
        raise LabError(f"exit code {done.returncode}: {said}", where=shown, hint=_hint(said))
    if step.append_to:
        with Path(step.append_to).open("ab") as file:
            file.write(done.stdout)


def _hint(said: str) -> str:
    if "Specified qdisc kind is unknown" in said:
        return (
            "this kernel lacks that traffic shaper (tbf, or netem for --latency): modprobe sch_netem sch_tbf"
        )
    if "Operation not permitted" in said:
        return "a container needs the capabilities SYS_ADMIN and NET_ADMIN (--privileged)"
    return ""
