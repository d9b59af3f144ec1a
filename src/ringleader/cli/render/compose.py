"""``ringleader render compose``: an application of mpihead and mpinode containers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ringleader.cli.extras import needs_kubernetes
from ringleader.cli.render.compose_options import COMPOSE_OPTIONS, request_of

if TYPE_CHECKING:
    from ringleader.render.compose.application import Application
    from ringleader.render.compose.application_files import File, Keys


@click.command(
    name="compose",
    params=list(COMPOSE_OPTIONS),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.pass_context
def command(ctx: click.Context, /, **_: object) -> None:
    """Make an application of one mpihead and N mpinode containers for docker compose.

    Commands are typed in mpihead, which takes ranks as the others do. Keys for ssh, host keys, hostfile and
    ssh's configuration come with it. One host: -n 8 --gpus 4. Several: --hosts node1:8,node2:8, one compose
    file for each.
    """
    with needs_kubernetes():
        from ringleader.mpijob import yaml_text
    from ringleader.cli.render import compose_directory
    from ringleader.render.compose.application import application
    from ringleader.render.compose.application_files import files, no_keys

    params = ctx.params
    asked = application(request_of(params, os.environ))

    def yaml(document: dict[str, Any]) -> str:
        return yaml_text.text_of([document])

    directory = None if params["output"] is None else Path(params["output"])
    if directory is not None:
        compose_directory.check(directory, replace=params["replace"])
        compose_directory.check_owner(asked.user)
    if directory is None or params["dry_run"]:
        print(_documents(asked, yaml, as_json=params["as_json"]), end="")
        _list(files(asked, no_keys(asked), yaml), directory)
        return
    written = files(asked, _new_keys(asked), yaml)
    compose_directory.write(directory, written, asked.user)
    if params["as_json"]:
        found = {"directory": str(directory), "files": {file.path: f"{file.mode:04o}" for file in written}}
        print(json.dumps(found, indent=2))
    _say(f"{directory} holds the application {asked.name}; {directory / 'README.md'} says how to start it")


def _documents(asked: Application, yaml: Any, *, as_json: bool) -> str:
    """Return the compose files: one as it is, several each under its name."""
    from ringleader.render.compose.compose_yaml import compose_documents

    documents = compose_documents(asked)
    if as_json:
        return json.dumps(documents, indent=2, ensure_ascii=False) + "\n"
    if len(documents) == 1:
        return "".join(map(yaml, documents.values()))
    return "".join(f"---\n# {path}\n{yaml(document)}" for path, document in documents.items())


def _new_keys(asked: Application) -> Keys:
    with needs_kubernetes():
        from ringleader.kube import ssh_keys
        from ringleader.render.compose.application_files import KeyPair, Keys

        found = [ssh_keys.generate("ed25519", ()) for _ in range(len(asked.containers) + 1)]
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
