"""``ringleader render compose``: an application of mpihead and mpinode containers, printed or written."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ringleader.cli.kubernetes.connection import needs_kubernetes
from ringleader.cli.kubernetes.manifest_arguments import yaml_of
from ringleader.cli.options.rank_options import parse_assignments
from ringleader.cli.output import JsonOptions, show
from ringleader.cli.typed_command import REPLACE, Command
from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.option_fields import flag, group, many, option
from ringleader.plan.host_list import merge_hosts, parse_hostfile
from ringleader.plan.job import Host
from ringleader.render.compose.application_files import File
from ringleader.render.compose.request import FOLDER, SSH_CONFIG, ComposeRequest, Mount, User

if TYPE_CHECKING:
    from ringleader.render.compose.application import Application
    from ringleader.render.compose.application_files import File, Keys


LIST = ".ringleader-files"
"""Names what we wrote: only a directory that holds nothing else is ever replaced."""


def check_directory(directory: Path, *, replace: bool) -> None:
    """Raise RequestError where something is there that must not be written over."""
    if not directory.exists() and not directory.is_symlink():
        if not directory.absolute().parent.is_dir():
            what = f"there is no directory {directory.absolute().parent}"
            raise RequestError(what, where="-o", hint="make it, or name another")
        return
    if not directory.is_dir() or directory.is_symlink():
        raise RequestError(f"{directory} is not a directory", where="-o")
    there = set(_below(directory))
    ours = _listed(directory)
    if not there:
        return
    foreign = sorted(there - ours - {LIST})
    if foreign or not ours:
        some = ", ".join(foreign[:5]) + (", …" if len(foreign) > 5 else "")
        hint = "name another directory, or move them away"
        raise RequestError(f"{directory} holds other files: {some}", where="-o", hint=hint)
    if not replace:
        what = f"{directory} holds an application already, with keys that its containers may be using"
        hint = "--replace draws new keys and writes all of it again; or name another directory"
        raise RequestError(what, where="-o", hint=hint)


def check_owner(user: User) -> None:
    """Raise RequestError where the containers' user could not read the private keys that we write."""
    ours = os.geteuid()
    if user.is_root or ours in (0, user.uid):
        return
    what = f"private keys of user {ours} cannot be read by user {user.uid} in the containers"
    hint = f"write them as root or as user {user.uid}, or choose --user {ours}"
    raise RequestError(what, where="--user and -o", hint=hint)


def write_directory(directory: Path, files: Sequence[File], user: User) -> None:
    """Write an application in one step: beside the directory first, then put in its place.

    ``check_directory`` and ``check_owner`` have passed. RefusedError where the system does not let us.
    """
    place = directory.absolute()
    try:
        made = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
        try:
            _fill(made, files, user)
            _put(made, place)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise RefusedError(what, where=str(error.filename or directory)) from None


def _fill(made: Path, files: Sequence[File], user: User) -> None:
    for file in files:
        path = made / file.path
        for folder in reversed(path.relative_to(made).parents):
            (made / folder).mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as out:
            os.fchmod(descriptor, file.mode)
            out.write(file.text)
        if file.container and os.geteuid() == 0:
            for owned in (path, path.parent):
                os.chown(owned, user.uid, -1 if user.gid is None else user.gid)
    (made / LIST).write_text(json.dumps([file.path for file in files]) + "\n", encoding="utf-8")


def _put(made: Path, place: Path) -> None:
    """Rename to the place; what was there is gone only when the new one stands."""
    if not place.exists():
        made.rename(place)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{place.name}.old.", dir=place.parent))
    place.rename(old)
    try:
        made.rename(place)
    except OSError:
        old.rename(place)
        raise
    shutil.rmtree(old)


def _below(directory: Path) -> Iterator[str]:
    """Return every file below a directory; an empty directory counts as one."""
    for path in directory.rglob("*"):
        if not path.is_dir() or path.is_symlink() or not any(path.iterdir()):
            yield str(path.relative_to(directory))


def _listed(directory: Path) -> set[str]:
    try:
        found = json.loads((directory / LIST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return set()
    return {str(one) for one in found} if isinstance(found, list) else set()


_MOUNT_HINT = "write /data:/data, or /data:/data:ro where the containers only read it"
_OURS = (PurePosixPath(FOLDER), PurePosixPath(SSH_CONFIG))


@dataclass(frozen=True, kw_only=True)
class ComposeOptions:
    """The options, as they were written."""

    request: ComposeRequest = group(ComposeRequest)
    hosts: tuple[str, ...] = many(
        "Run one container on each of these hosts, with this many slots; mpihead is on the first.",
        metavar="h1:8,h2:8",
        after="np",
    )
    mount: tuple[str, ...] = many(
        "Mount a path of the host in every container. Can be repeated.",
        metavar="SRC:DST[:ro]",
        after="project_name",
    )
    env: tuple[str, ...] = many(
        "Set a variable in the containers and in every session in them. Can be repeated.",
        "-x",
        old=("--env",),
        metavar="NAME[=VALUE]",
        after="mount",
    )
    output: str | None = option(
        "Write the application to this directory, with new keys. [default: print the compose file]",
        "-o",
        "--output",
        metavar="DIR",
    )
    replace: bool = flag("Overwrite an application in DIR; draws new keys.", **REPLACE)
    dry_run: bool = flag("With -o: print the compose file without writing anything.")
    json: JsonOptions = group(JsonOptions)
    faults: tuple[Fault, ...] = ()


def request_of(options: ComposeOptions, environ: Mapping[str, str]) -> ComposeRequest:
    """Return what was asked for; what is wrong with the words is in its ``faults``."""
    faults = list(options.faults)
    variables = parse_assignments(options.env, environ)
    return replace(
        options.request,
        hosts=_hosts(options.hosts, faults),
        mounts=_mounts(options.mount, faults),
        env=tuple(dict(variables.values).items()),
        faults=(*faults, *variables.faults),
    )


def _hosts(texts: Iterable[str], faults: list[Fault]) -> tuple[Host, ...]:
    """Read ``node1:8,node2:8``; a bare name leaves its slots open."""
    found: list[Host] = []
    for number, word in enumerate((word.strip() for text in texts for word in text.split(",")), start=1):
        where = f"--hosts {word[:80]}" if word and word.isprintable() else f"--hosts entry {number}"
        if not word or len(word.split()) != 1 or "#" in word:
            faults.append(Fault(where=where, what="is not a host", hint="write node1:8,node2:8"))
            continue
        parsed = parse_hostfile(word, "--hosts")
        faults += (replace(fault, where=where) for fault in parsed.faults)
        found += parsed.hosts
    return merge_hosts(found)


def _mounts(words: Iterable[str], faults: list[Fault]) -> tuple[Mount, ...]:
    """Read ``SOURCE:TARGET[:ro]``, each an absolute path."""
    found: list[Mount] = []
    for word in words:
        parts = word.split(":")
        what = "is not a mount"
        if len(parts) == 2 or (len(parts) == 3 and parts[2] in ("ro", "rw")):
            wrong = _wrong_path(parts[0], "source") or _wrong_path(parts[1], "target")
            what = wrong or _taken(parts[1], found)
        if what:
            shown = word[:80] if word.isprintable() else repr(word[:80])
            faults.append(Fault(where=f"--mount {shown}", what=what, hint=_MOUNT_HINT))
            continue
        is_read_only = parts[2:] == ["ro"]
        found.append(Mount(source=_plain(parts[0]), target=_plain(parts[1]), read_only=is_read_only))
    return tuple(found)


def _wrong_path(path: str, what: str) -> str:
    """Say what is wrong with a path; empty: nothing."""
    if not path.startswith("/"):
        return f"the {what} is not an absolute path"
    if not path.isprintable():
        return f"the {what} holds a control character"
    if ".." in PurePosixPath(path).parts:
        return f"the {what} holds .."
    return ""


def _taken(target: str, before: Iterable[Mount]) -> str:
    """Say why nothing can be mounted at a target; empty: it can."""
    path = PurePosixPath(_plain(target))
    if path == PurePosixPath("/"):
        return "nothing can be mounted over the whole of a container"
    if any(ours.is_relative_to(path) or path.is_relative_to(ours) for ours in _OURS):
        return f"the target hides what is in {FOLDER} or {SSH_CONFIG}"
    return "the target is taken by another mount" if str(path) in {one.target for one in before} else ""


def _plain(path: str) -> str:
    """Return a path without double or trailing slashes."""
    return "/" + str(PurePosixPath(path)).lstrip("/")


@Command.of("compose", ComposeOptions)
def command(options: ComposeOptions) -> None:
    """Make a docker compose application with one mpihead and N mpinode containers.

    You type commands in mpihead, which also runs ranks. ssh keys, host keys, hostfile and ssh configuration
    are included. One host: -n 8 --gpus 4. Several: --hosts node1:8,node2:8, with one compose file for each.
    """
    from ringleader.render.compose.application import application
    from ringleader.render.compose.application_files import compose_documents, files, no_keys

    built = application(request_of(options, os.environ))
    user = built.request.user
    directory = None if options.output is None else Path(options.output)
    if directory is not None:
        check_directory(directory, replace=options.replace)
        check_owner(user)
    if directory is None or options.dry_run:
        documents = compose_documents(built)
        show(options.json, documents, lambda: _text(documents))
        _say(f"{'-o DIR writes' if directory is None else f'{directory} would hold'} these files:")
        for file in files(built, no_keys(built), _yaml):
            print(f"  {file.mode:04o} {file.path}", file=sys.stderr)
        return
    written = files(built, _new_keys(built), _yaml)
    write_directory(directory, written, user)
    modes = {"directory": str(directory), "files": {file.path: f"{file.mode:04o}" for file in written}}
    show(options.json, modes, lambda: "")
    place = directory / "README.md"
    _say(f"{directory} holds the application {built.request.name}; {place} says how to start it")


def _yaml(document: dict[str, Any]) -> str:
    return yaml_of([document])


def _text(documents: Mapping[str, dict[str, Any]]) -> str:
    """Return the compose files: one as it is, several each under its name."""
    if len(documents) == 1:
        return "".join(map(_yaml, documents.values()))
    return "".join(f"---\n# {path}\n{_yaml(document)}" for path, document in documents.items())


def _new_keys(built: Application) -> Keys:
    with needs_kubernetes():
        from ringleader.kubernetes.objects import ssh_secret
        from ringleader.render.compose.application_files import KeyPair, Keys

        found = [ssh_secret.generate("ed25519", ()) for _ in range(len(built.containers) + 1)]
    pairs = [
        KeyPair(private=one["ssh-privatekey"].decode(), public=one["ssh-publickey"].decode()) for one in found
    ]
    return Keys(login=pairs[0], hosts=tuple(pairs[1:]))


def _say(text: str) -> None:
    print(f"ringleader: {text}", file=sys.stderr)
