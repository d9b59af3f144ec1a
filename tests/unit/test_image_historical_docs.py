"""The tables of docs/reference/historical-images.md: every quoted part stands where they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ringleader.finding import Level
from ringleader.images import bundled_recipes, image_assembly, recipe_parser, tables
from ringleader.images.check import Finding, check, selection_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/historical-images.md"
GOLDEN = "tests/golden/images/{}.Dockerfile"
HISTORICAL = ("tensorflow-1.12-verbs", "horovod-0.11", "all-frameworks-2019")
NOTHING = "–"
every_recipe = pytest.mark.parametrize("name", HISTORICAL)


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def rows(section: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def section(mark: str) -> str:
    """The section of the page in which something is."""
    found = [
        part for part in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:] if mark in part
    ]
    assert len(found) == 1, mark
    return found[0]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def stages(name: str) -> dict[str, list[str]]:
    """The instructions of each stage, each on one line; the last stage is called ``image``."""
    text = (ROOT / GOLDEN.format(name)).read_text(encoding="utf-8")
    joined = re.sub(r" *\\\n *", " ", text)
    found: dict[str, list[str]] = {}
    stage = ""
    for line in joined.splitlines():
        if line.startswith("FROM "):
            stage = line.split(" AS ")[1] if " AS " in line else "image"
            found[stage] = []
        if stage and not line.startswith("#"):
            found[stage].append(line)
    return found


def findings(name: str, *settings: str) -> tuple[Finding, ...]:
    recipe = recipe_parser.recipe(bundled_recipes.text(name), name, settings)
    return check(selection_of(recipe), tables.load())


@every_recipe
def test_each_quoted_part_stands_in_the_stage_that_the_table_says(name: str) -> None:
    table = rows(section(GOLDEN.format(name)))
    assert len(table) >= 15
    found = stages(name)
    for what, stage, cell, _ in table:
        parts = quoted(cell)
        assert parts, what
        for part in parts:
            assert any(part in line for line in found[stage]), (what, stage, part)


@every_recipe
def test_what_check_is_said_to_say_it_says(name: str) -> None:
    said = {text for finding in findings(name) for text in (finding.what, finding.hint)}
    for what, _, _, cell in rows(section(GOLDEN.format(name))):
        assert cell == NOTHING or quoted(cell), what
        assert set(quoted(cell)) <= said, what


@every_recipe
def test_all_that_cannot_be_had_and_all_that_is_lacking_is_listed(name: str) -> None:
    table = rows(section("the levels `gone`"))
    column = 1 + HISTORICAL.index(name)
    assert {row[column] for row in table} <= {"yes", NOTHING}
    listed = {row[0] for row in table if row[column] == "yes"}
    found = {
        f"{finding.level}: {finding.where}"
        for finding in findings(name)
        if finding.level in ("gone", "exemption")
    }
    assert listed == found


@every_recipe
def test_no_recipe_has_a_fault_or_a_warning(name: str) -> None:
    assert [one.what for one in findings(name) if one.level in ("fault", "warning")] == []


def test_the_nearest_set_that_the_page_names_does_fit() -> None:
    command = re.search(
        r"^ringleader image check all-frameworks-2019(.*)$", PAGE.read_text(encoding="utf-8"), re.M
    )
    assert command is not None
    settings = re.findall(r"--set (\S+)", command[1])
    assert len(settings) == 3
    rules = {one.where for one in findings("all-frameworks-2019", *settings)}
    assert "image-cuda" in {one.where for one in findings("all-frameworks-2019")}
    assert not rules & {"image-cuda", "torch-variant", "torchvision"}


def test_pytorch_for_cuda_9_0_is_a_fault_that_names_the_wheels_there_are() -> None:
    found = [one for one in findings("all-frameworks-2019", "torch.variant=cu90") if one.level == "fault"]
    assert [one.what for one in found] == ["PyTorch 1.3.0 has no wheel for CUDA 9.0"]
    assert "cu92, cu100, cu101" in found[0].hint


def test_another_bazel_is_a_fault_that_names_the_right_one() -> None:
    found = findings("tensorflow-1.12-verbs", "tensorflow-source.bazel=0.19.2")
    assert [one.hint for one in found if one.level is Level.FAULT] == ["bazel 0.15.0"]


def test_horovod_in_a_runtime_image_is_a_fault_though_there_is_a_stage_that_compiles() -> None:
    settings = ("horovod.version=0.11.2", "horovod.gpu-operations=nccl", "mpi.source=base")
    found = [one for one in findings("tensorflow-1.12-verbs", *settings) if one.level is Level.FAULT]
    assert [one.where for one in found] == ["horovod-build"]
    assert "9.0-runtime" in found[0].what


def test_an_own_copy_of_the_base_is_one_setting() -> None:
    own = re.search(r"--set (base=\S+?)`", page())
    assert own is not None
    recipe = recipe_parser.recipe(bundled_recipes.text("horovod-0.11"), "horovod-0.11", (own[1],))
    made = image_assembly.image(recipe).stages[-1]
    assert made.base == "registry.example.org/nvidia/cuda:9.0-devel-ubuntu16.04"
    assert any("libcudnn7=7.0.5.15-1+cuda9.0" in repr(step) for step in made.steps)
