"""Containers that ranks run in: which engines can start them, what is mounted, and what of it is wrong. Pure.

What an engine is given is made in ``render/container_command``; what hosts have is found by
``launch/host_probe/container_probe``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from ringleader.errors import Fault

ENGINES = ("podman", "docker", "apptainer", "enroot")
"""Programs that start containers, in the order in which they are looked for."""
FILE_ENGINES = {".sif": "apptainer", ".sqsh": "enroot"}
"""Kind of an image that is a file → the engine that reads it."""
IMAGE_PYTHON = "python3"
"""Found on the image's PATH."""
SHARED_DIRECTORY = "/tmp"
"""Mounted in every container: the job's own files, and those of the MPI, are there on every host."""


def engines_for(image: str, asked: str | None) -> tuple[str, ...]:
    """Return the engines that may start an image: the one asked for, else those that know its kind."""
    if asked is not None:
        return (asked,)
    of_file = FILE_ENGINES.get(PurePosixPath(image).suffix)
    return (of_file,) if of_file else ENGINES[:2]


def is_file(image: str, asked: str | None) -> bool:
    """Say whether an image is a path on each host, not a name in an engine's storage."""
    return "/" in image and engines_for(image, asked)[0] in FILE_ENGINES.values() and "://" not in image


def mounts(workdir: str, words: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
    """Return what containers see of a host, as source, target, and ``ro`` or nothing.

    That is the shared directory, the ranks' directory (``workdir``, an absolute path; ``/`` is the image's),
    and ``words`` of ``--container-mount``, which have been checked.
    """
    ours = [(path, path, "") for path in (SHARED_DIRECTORY, workdir) if path != "/"]
    parts = [(*word.split(":"), "", "") for word in words]
    users = [(source, target or source, "ro" * (mode == "ro")) for source, target, mode, *_ in parts]
    return tuple({one[1]: one for one in (*ours, *users)}.values())


def container_faults(
    image: str | None, engine: str | None, words: Sequence[str], workdir: str
) -> Iterator[Fault]:
    """Yield what is wrong with the options of containers."""
    if image is None:
        for option, value in (("--container-engine", engine), ("--container-mount", words)):
            if value:
                yield Fault(where=option, what="requires --container", hint="add --container IMAGE")
        return
    if not image or image.startswith("-") or any(letter.isspace() for letter in image):
        yield Fault(where="--container", what=f"{image!r} is not an image", hint="give its name or its file")
    for word in words:
        parts = word.split(":")
        is_known = len(parts) < 3 or (len(parts) == 3 and parts[2] in ("ro", "rw"))
        if not is_known or not all(part.startswith("/") for part in parts[:2]):
            what, hint = f"{word!r} is not a mount", "write SRC:DST or SRC:DST:ro, both absolute paths"
            yield Fault(where="--container-mount", what=what, hint=hint)
    for option, path in (("--workdir", workdir), *(("--container-mount", word) for word in words)):
        if "," in path:
            hint = "use a path without one"
            yield Fault(
                where=option, what=f"{path} has a comma, which engines take for a separator", hint=hint
            )
