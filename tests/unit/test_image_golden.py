"""Every profile in every format: golden files, and what judges say that nobody here wrote."""

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from tests.unit import image_world

from ringleader.images.instructions import Copy, Env, Image, Label, Run

GOLDEN = image_world.ROOT / "tests/golden/images"
INSTRUCTIONS = {"Run": "RUN", "Env": "ENV", "Copy": "COPY", "User": "USER", "Workdir": "WORKDIR"} | {
    "Label": "LABEL",
    "Expose": "EXPOSE",
    "Command": "CMD",
}
every_profile = pytest.mark.parametrize("name", image_world.PROFILES)


@cache
def image(name: str) -> Image:
    return image_world.image_of_profile(name)


@cache
def text(name: str, form: str) -> str:
    return image_world.TEXTS[form](image(name))


@every_profile
@pytest.mark.parametrize("form", image_world.TEXTS)
def test_golden(golden: Callable[[str, str], None], name: str, form: str) -> None:
    golden(f"../images/{name}.{form}", text(name, form))


def test_no_golden_is_left_over() -> None:
    wanted = {f"{name}.{form}" for name in image_world.PROFILES for form in image_world.TEXTS}
    assert {path.name for path in GOLDEN.iterdir()} == wanted


@pytest.fixture(scope="module")
def linted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What image_world.hadolint says of each profile."""
    directory = tmp_path_factory.mktemp("lint")
    files = [directory / f"{name}.Dockerfile" for name in image_world.PROFILES]
    for name, file in zip(image_world.PROFILES, files, strict=True):
        file.write_text(text(name, "Dockerfile"))
    said = defaultdict(list)
    for one in json.loads(image_world.hadolint(*files)):
        said[Path(one["file"]).stem].append(
            f"{one['level']} {one['code']} line {one['line']}: {one['message']}"
        )
    return said


@every_profile
def test_hadolint_has_nothing_to_say(linted: dict[str, list[str]], name: str) -> None:
    assert linted[name] == []


@every_profile
def test_buildkit_reads_the_steps_and_commands_that_we_mean(name: str) -> None:
    wanted = []
    for stage in image(name).stages:
        wanted.append("FROM")
        for step in stage.steps:
            kind = INSTRUCTIONS[type(step).__name__]
            # A variable that refers to another one of its step gets its own instruction.
            if not (kind == "ENV" and wanted[-1] == "ENV"):
                wanted.append(kind)
    found: list[str] = []
    for one in image_world.docker_commands(text(name, "Dockerfile")):
        if not (one.cmd.upper() == "ENV" and found[-1] == "ENV"):
            found.append(one.cmd.upper())
    assert found == wanted
    steps = [step for stage in image(name).stages for step in stage.steps if isinstance(step, Run)]
    runs = [
        one.value[0]
        for one in image_world.docker_commands(text(name, "Dockerfile"))
        if one.cmd.upper() == "RUN"
    ]
    for step, read in zip(steps, runs, strict=True):
        assert bare(read) == bare(" ".join(step.commands))


def bare(shell: str) -> list[str]:
    """The words of a chain, without what holds its commands together."""
    return [word.rstrip(";") for word in shlex.split(shell) if word not in ("&&", "{", "}", "};", ";")]


@every_profile
def test_spython_reads_stages_labels_environment_and_test(tmp_path: Path, name: str) -> None:
    wanted = image(name).stages
    found = image_world.definition(tmp_path, text(name, "def"))
    assert [(key, one.fromHeader) for key, one in found.items()] == [(one.name, one.base) for one in wanted]
    for stage in wanted:
        copies = [step for step in stage.steps if isinstance(step, Copy)]
        read = found[stage.name]
        assert len(read.files) == sum(len(copy.sources) for copy in copies if not copy.stage)
        from_stages = sum(len(paths) for paths in read.layer_files.values())
        assert from_stages == sum(len(copy.sources) for copy in copies if copy.stage)
    labels = [pair for step in wanted[-1].steps if isinstance(step, Label) for pair in step.labels]
    assert [tuple(line.split(" ", 1)) for line in read.labels] == labels
    names = [pair[0] for step in wanted[-1].steps if isinstance(step, Env) for pair in step.variables]
    assert [line.partition("=")[0] for line in read.environ] == names
    assert read.test


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What image_world.shellcheck says of each profile's scripts for Apptainer."""
    directory = tmp_path_factory.mktemp("scripts")
    files = []
    for name in image_world.PROFILES:
        for number, script in enumerate(scripts(text(name, "def"))):
            files.append(directory / f"{name}@{number}")
            files[-1].write_text(script)
    said = defaultdict(list)
    for line in image_world.shellcheck(*files).splitlines():
        said[Path(line.partition(":")[0]).name.partition("@")[0]].append(line)
    return said


def scripts(whole: str) -> list[str]:
    parts = re.split(r"^(?=%|Bootstrap:)", whole, flags=re.MULTILINE)
    return [
        part.partition("\n")[2]
        for part in parts
        if part.startswith(("%post", "%environment", "%runscript", "%test"))
    ]


@every_profile
@pytest.mark.process
def test_shellcheck_has_nothing_to_say(checked: dict[str, list[str]], name: str) -> None:
    assert checked[name] == []
