"""Compose files as docker-compose reads them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as some

from ringleader.kubernetes.mpijob import yaml_text
from ringleader.render.compose.application import application
from ringleader.render.compose.application_files import compose_documents
from ringleader.render.compose.request import ComposeRequest, Mount

GOLDEN = Path(__file__).parent.parent / "golden" / "compose"
COMPOSE = shutil.which("docker-compose")
pytestmark = pytest.mark.skipif(COMPOSE is None, reason="needs docker-compose")

VALUES = some.text(
    some.characters(exclude_categories=("Cs", "Cc")) | some.sampled_from("$'\"\\ \t#{}%`;&|<>*!~=:-,"),
    max_size=40,
)


def config(path: str, text: str = "") -> dict[str, dict[str, object]]:
    """What docker-compose says that a file means: its services."""
    done = subprocess.run(
        [str(COMPOSE), "-f", path, "config"],
        input=text.encode(),
        capture_output=True,
        timeout=120,
        env={"PATH": os.environ["PATH"], "HOME": "/nowhere", "LANG": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stderr.decode()
    found = yaml.safe_load(done.stdout)["services"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.rglob("*.yaml")), ids=lambda path: str(path.relative_to(GOLDEN))
)
def test_every_golden_file_is_taken(path: Path) -> None:
    ours = yaml.safe_load(path.read_text())["services"]
    found = config(str(path))
    assert set(found) == set(ours)
    for service, document in ours.items():
        # What docker-compose does not know it would have refused; what is lost would be missing here.
        assert set(document) == set(found[service])


@settings(max_examples=2)
@given(values=some.lists(VALUES, min_size=100, max_size=100))
def test_values_come_back_byte_for_byte(values: list[str]) -> None:
    named = {f"V{index}": value for index, value in enumerate(values)}
    mounts = tuple(Mount(source=f"/data/{index} $x", target=f'/a "{index}" $HOME') for index in range(3))
    request = ComposeRequest(image="none", ranks=1, env=tuple(named.items()), mounts=mounts)
    (document,) = compose_documents(application(request)).values()
    service = config("-", yaml_text.text_of([document]))["mpihead"]
    assert {name: interpolated(value) for name, value in service["environment"].items()} == named
    found = {(interpolated(one["source"]), interpolated(one["target"])) for one in service["volumes"]}
    assert {(one.source, one.target) for one in mounts} <= found


def interpolated(text: str) -> str:
    """What compose makes of a value: ``$$`` is a dollar, and a single one would begin a variable."""
    assert "$" not in text.replace("$$", ""), text
    return text.replace("$$", "$")
