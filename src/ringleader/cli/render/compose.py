"""``ringleader render compose``: an application of mpihead and mpinode containers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringleader.cli.extras import needs_kubernetes
from ringleader.cli.json_output import show
from ringleader.cli.kubernetes.manifest_arguments import yaml_of
from ringleader.cli.render.compose_options import ComposeOptions, request_of
from ringleader.cli.typed_command import Command

if TYPE_CHECKING:
    from ringleader.render.compose.application import Application
    from ringleader.render.compose.application_files import File, Keys


HELP = """Make an application of one mpihead and N mpinode containers for docker compose.

Commands are typed in mpihead, which takes ranks as the others do. Keys for ssh, host keys, hostfile and
ssh's configuration come with it. One host: -n 8 --gpus 4. Several: --hosts node1:8,node2:8, one compose
file for each.
"""


def compose(options: ComposeOptions) -> None:
    """Print the compose files, or write the application."""
    from ringleader.cli.render import compose_directory
    from ringleader.render.compose.application import application
    from ringleader.render.compose.application_files import files, no_keys
    from ringleader.render.compose.compose_yaml import compose_documents

    built = application(request_of(options, os.environ))
    directory = None if options.output is None else Path(options.output)
    if directory is not None:
        compose_directory.check(directory, replace=options.replace)
        compose_directory.check_owner(built.user)
    if directory is None or options.dry_run:
        documents = compose_documents(built)
        show(options.json, documents, lambda: _text(documents))
        _list(files(built, no_keys(built), _yaml), directory)
        return
    written = files(built, _new_keys(built), _yaml)
    compose_directory.write(directory, written, built.user)
    modes = {"directory": str(directory), "files": {file.path: f"{file.mode:04o}" for file in written}}
    show(options.json, modes, lambda: "")
    _say(f"{directory} holds the application {built.name}; {directory / 'README.md'} says how to start it")


command = Command("compose", options=ComposeOptions, run=compose, help=HELP)


def _yaml(document: dict[str, Any]) -> str:
    return yaml_of([document])


def _text(documents: Mapping[str, dict[str, Any]]) -> str:
    """Return the compose files: one as it is, several each under its name."""
    if len(documents) == 1:
        return "".join(map(_yaml, documents.values()))
    return "".join(f"---\n# {path}\n{_yaml(document)}" for path, document in documents.items())


def _new_keys(built: Application) -> Keys:
    with needs_kubernetes():
        from ringleader.kube import ssh_keys
        from ringleader.render.compose.application_files import KeyPair, Keys

        found = [ssh_keys.generate("ed25519", ()) for _ in range(len(built.containers) + 1)]
    pairs = [
        KeyPair(private=one["ssh-privatekey"].decode(), public=one["ssh-publickey"].decode()) for one in found
    ]
    return Keys(login=pairs[0], hosts=tuple(pairs[1:]))


def _list(listed: Sequence[File], directory: Path | None) -> None:
    """Say which files belong to it."""
    where = "-o DIR writes" if directory is None else f"{directory} would hold"
    _say(f"{where} these files:")
    for file in listed:
        print(f"  {file.mode:04o} {file.path}", file=sys.stderr)


def _say(text: str) -> None:
    print(f"ringleader: {text}", file=sys.stderr)
