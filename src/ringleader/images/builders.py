"""Which program builds images here: the first of buildah, podman and docker that answers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from ringleader.errors import Fault, RefusedError

NAMES = ("buildah", "podman", "docker")
"""In the order in which they are asked."""
QUESTIONS: dict[str, tuple[str, ...]] = {
    "buildah": ("info", "--format", "{{.store.GraphDriverName}}"),
    "podman": ("info", "--format", "{{.Store.GraphDriverName}}"),
    "docker": ("info", "--format", "{{.ServerVersion}}"),
}
"""What only a builder that works can answer: its storage's driver, or its daemon's version."""
ANSWER_SECONDS = 15.0
END_SECONDS = 3.0
"""Between SIGTERM and SIGKILL for a command that took too long, or that nobody waits for any more."""


@dataclass(frozen=True, kw_only=True)
class Builder:
    """A program that builds images and has answered."""

    name: str
    """``buildah``, ``podman`` or ``docker``."""
    program: str
    """Its absolute path."""
    version: str
    """As it says it, for people."""
    global_options: tuple[str, ...] = ()
    """Before each sub-command: where the images are kept."""


def find(
    wanted: str = "",
    *,
    environ: Mapping[str, str],
    storage_driver: str = "",
    seconds: float = ANSWER_SECONDS,
) -> Builder:
    """Return the builder ``wanted``, or where that is empty the first one that answers.

    ``seconds``: what each one may take. Raises RefusedError with the reason of each one that was asked.
    """
    faults = []
    for name in (wanted,) if wanted else NAMES:
        if storage_driver and name == "docker":
            what = "its daemon decides on the storage driver"
            faults.append(Fault(where=name, what=what, hint="leave --storage-driver out"))
            continue
        options = ("--storage-driver", storage_driver) if storage_driver else ()
        found = _asked(name, options, environ=environ, seconds=seconds)
        if isinstance(found, Builder):
            return found
        faults.append(found)
    raise RefusedError(faults)


def _asked(
    name: str, options: tuple[str, ...], *, environ: Mapping[str, str], seconds: float
) -> Builder | Fault:
    program = shutil.which(name, path=environ.get("PATH", os.defpath))
    if program is None:
        hint = f"apt-get install {'docker.io' if name == 'docker' else name}"
        return Fault(where=name, what="is not installed (looked for it on PATH)", hint=hint)
    said = answer((program, *options, *QUESTIONS[name]), environ=environ, seconds=seconds)
    if said.code is None:
        return Fault(where=name, what=f"{program} did not answer within {seconds:g} s")
    # A docker client without a daemon prints an empty answer; some of its versions end with 0 all the same.
    if said.code != 0 or not said.out.strip():
        reason = said.words[-300:] or "nothing"
        hint = "is its daemon running?" if name == "docker" else ""
        return Fault(where=name, what=f"{program} does not work here: it says {reason!r}", hint=hint)
    known = answer((program, "--version"), environ=environ, seconds=seconds)
    lines = known.out.strip().splitlines() if known.code == 0 else []
    version = lines[0] if lines else name
    return Builder(name=name, program=program, version=version, global_options=options)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a short command gave."""

    code: int | None
    """``None``: it did not end in time."""
    out: str
    err: str

    @property
    def words(self) -> str:
        """What it has to say for itself, on one line."""
        return " ".join(f"{self.err} {self.out}".split())


def answer(argv: tuple[str, ...], *, environ: Mapping[str, str], seconds: float) -> Answer:
    """Ask a command. What it started ends with it: its process group is killed once the time is over."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            start_new_session=True,
        )
    except OSError as error:
        return Answer(code=127, out="", err=str(error.strerror or error))
    with process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            out, err = process.communicate()
            return Answer(code=None, out=out.decode(errors="replace"), err=err.decode(errors="replace"))
        except BaseException:
            _end(process)
            raise
    return Answer(code=process.returncode, out=out.decode(errors="replace"), err=err.decode(errors="replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group: those that write somewhere have ended when we return."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
