"""Any value in any key of any block: refused, or an image with the same instructions and nothing more."""

import json
import subprocess
from dataclasses import Field, fields
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from tests.unit.image_world import docker_commands, image_of
from tests.unit.test_image_dockerfile import VALUES, toml

from ringleader.errors import RequestError
from ringleader.images import apptainer, dockerfile
from ringleader.images.blocks import KINDS
from ringleader.images.blocks.block import Block
from ringleader.images.instructions import Env, Image
from ringleader.images.recipe import Recipe, TextKind, is_needed
from ringleader.images.recipe_parser import key_of

pytestmark = pytest.mark.process

KEYS = [
    (kind, field)
    for kind in (None, *KINDS)
    for field in fields(kind if kind else Recipe)
    if "kind" in field.metadata
]
NEEDED = {"name": "x", "base": "debian:12", "user_space": "rdma-core"}


def any_value(kind: TextKind) -> some.SearchStrategy[str]:
    """Text of any sort, and text that is of this one."""
    return some.one_of(
        VALUES, some.from_regex(kind.pattern, fullmatch=True).filter(lambda one: len(one) < 200)
    )


def written(field: Field[Any], value: str, name: str) -> str:
    kind = str(field.type)
    if kind == "str":
        return toml(value)
    return f"[{toml(value)}]" if kind == "tuple[str, ...]" else f"{{ {json.dumps(name)} = {toml(value)} }}"


def recipe_with(kind: type[Block] | None, field: Field[Any], value: str) -> str:
    """A recipe in which one key has a value, and all that is needed has one."""
    name = "a" if field.name == "labels" else "src/x" if field.name == "copy" else "A"
    head = {one.name: toml(NEEDED[one.name]) for one in fields(Recipe) if one.name in ("name", "base")}
    body: dict[str, str] = {}
    if kind is not None:
        for one in fields(kind):
            if is_needed(one):
                body[one.name] = toml(NEEDED.get(one.name, one.metadata["kind"].example))
    (head if kind is None else body)[field.name] = written(field, value, name)
    lines = [f"{key_of(key)} = {one}" for key, one in head.items()]
    if kind is not None:
        lines += [f"[{kind.table}]", *(f"{key_of(key)} = {one}" for key, one in body.items())]
    return "\n".join(lines)


def kinds(image: Image) -> list[str]:
    names = {"Command": "CMD"}
    found = []
    for stage in image.stages:
        found.append("FROM")
        for step in stage.steps:
            name = type(step).__name__
            many = (
                len([line for line in dockerfile._env(step) if line.startswith("ENV")])
                if isinstance(step, Env)
                else 1
            )
            found += [names.get(name, name.upper())] * many
    return found


@pytest.mark.parametrize(
    ("kind", "field"), KEYS, ids=[f"{kind.table if kind else ''}.{field.name}" for kind, field in KEYS]
)
def test_no_value_becomes_an_instruction(kind: type[Block] | None, field: Field[Any]) -> None:
    @settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
    @given(any_value(field.metadata["kind"]))
    def check(value: str) -> None:
        try:
            image = image_of(recipe_with(kind, field, value))
        except RequestError:
            return
        commands = docker_commands(dockerfile.text(image))
        assert [one.cmd.upper() for one in commands] == kinds(image)
        script = "\n".join(f"( {one.value[0]} )" for one in commands if one.cmd.upper() == "RUN")
        assert (
            subprocess.run(["sh", "-n", "-c", script], capture_output=True, timeout=60, check=False).stderr
            == b""
        )
        try:
            text = apptainer.text(image)
        except RequestError:
            return
        assert sum(line.startswith("Bootstrap:") for line in text.splitlines()) == len(image.stages)

    check()
