"""The guide to images: each command that needs no registry, index or cluster is executed, in order."""

import json
import os
import shlex
import sys
from pathlib import Path

from tests.commands import finished
from tests.docs.pages import blocks

from ringleader.errors import RefusedError
from ringleader.images import builders
from ringleader.images.attestation import PROVENANCE, statement

GUIDE = "docs/guides/images.md"
ELSEWHERE = (
    "ringleader image lock",  # asks pip's index
    "ringleader image build train.toml --tag",  # pulls and builds
    "ringleader run --on kubernetes",
    "buildah ",
    "docker ",
)
"""What needs a registry, an index or a cluster. The real build is `make test-images`."""
REFUSED = ("ringleader image solve torch=2.15 gpu=p100",)


def test_the_guide_works_as_it_stands(tmp_path: Path) -> None:
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    recipes = [body for _, body in blocks(GUIDE, "toml")]
    assert recipes[0].startswith('name = "train"')
    ran, printed = [], ""
    made = statement("example.org/team/train:1", "sha256:" + "cd" * 32, PROVENANCE, {})
    (tmp_path / "provenance.json").write_text(json.dumps(made))
    (tmp_path / "sbom.json").write_text('{"bomFormat": "CycloneDX"}')
    for language, body in blocks(GUIDE):
        body = body if language == "toml" else body.replace("sha256:…", f"sha256:{'ab' * 32}")
        if language == "toml" and body == recipes[0]:
            (tmp_path / "train.toml").write_text(body)
        elif language == "":
            shown = [line.strip() for line in body.splitlines() if line.strip() != "…"]
            assert all(line in printed for line in shown), printed
        elif language == "console":
            for line in body.splitlines():
                command = line.removeprefix("$ ")
                if command.startswith(ELSEWHERE) or (" build " in command and not _builder()):
                    continue
                printed = _executed(command, tmp_path, environ)
                ran.append(command)
    assert len(ran) >= 18
    assert (tmp_path / "context/Dockerfile").read_text().startswith("# Made by `ringleader image render`")


def _executed(command: str, place: Path, environ: dict[str, str]) -> str:
    words, _, target = command.partition(" > ")
    done = finished(shlex.split(words), cwd=place, env=environ, timeout=60)
    assert done.returncode == (2 if command in REFUSED else 0), f"{command}\n{done.stderr}"
    if target:
        (place / target).write_text(done.stdout)
    return done.stdout + done.stderr


def _builder() -> bool:
    """Tell whether a builder answers: also a dry run names the one that would be used."""
    try:
        builders.find(environ=os.environ)
    except RefusedError:
        return False
    return True
