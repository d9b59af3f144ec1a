"""Containers that ranks run in: which engines can start them, what is mounted, and what of it is wrong. Pure.

What an engine is given is made in ``render/container_command``; what hosts have is found by
``launch/host_probe/container_probe``.
"""

from __future__ import annotations

import posixpath
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
    users = [(one, _normal(at or one), "ro" * (mode == "ro")) for one, at, mode, *_ in parts]
    return tuple({one[1]: one for one in (*ours, *users)}.values())


def _normal(path: str) -> str:
    return posixpath.normpath(f"//{path}")  # of two slashes alone POSIX makes no single one


def container_faults(
    image: str | None, engine: str | None, words: Sequence[str], workdir: str, kernel_log: str | None = None
) -> Iterator[Fault]:
    """Yield what is wrong with the options of containers, and with paths that are mounted."""
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
            continue
        source, target = (_normal(part) for part in (*parts[:2], parts[0])[:2])
        hidden = {workdir: "the ranks' directory", "/": "the image", SHARED_DIRECTORY: "the job's files"}
        is_same = source == target != "/" and not (target == SHARED_DIRECTORY and "ro" in parts[2:])
        if target in hidden and not is_same:
            what = f"{word!r} replaces {target}, {hidden[target]}"
            yield Fault(where="--container-mount", what=what, hint="mount it at another path")
    separators = {",": "comma"} | ({} if engines_for(image, engine)[0] in ENGINES[:2] else {":": "colon"})
    paths = [("--workdir", workdir, separators), ("--kernel-log", kernel_log or "", separators)]
    paths += [("--container-mount", word, {",": "comma"}) for word in words]
    for option, path, signs in paths:
        for name in (name for sign, name in signs.items() if sign in path):
            what, hint = f"{path} has a {name}, which engines take for a separator", "use a path without one"
            yield Fault(where=option, what=what, hint=hint)
