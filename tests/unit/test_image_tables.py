"""The version tables: every row well-formed, every reference between them resolved, sources shown."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ringleader.finding import UNVERIFIED
from ringleader.images.base_image import find_base, find_cuda_image
from ringleader.images.tables import Tables, load, rows, rows_by
from ringleader.images.tables.version_order import at_least, key, matches, nearest, newest, series

ROOT = Path(__file__).parents[2]
VERSION = re.compile(r"\d+(\.\d+)*(p\d+|a\d+|\.post\d+)?")
PYTHON = re.compile(r"2\.7|3\.\d+")


def every_row(tables: Tables) -> Iterator[object]:
    for field in fields(Tables):
        found = getattr(tables, field.name)
        if isinstance(found, Mapping):
            found = tuple(found.values())
        yield from found if isinstance(found, tuple) else (found,)


def test_every_row_says_what_it_is_and_where_that_is_written() -> None:
    seen: set[str] = set()
    for row in every_row(load()):
        cited = row.cited()
        assert cited.row and cited.says, row
        assert cited.shown_source == (cited.source or UNVERIFIED)
        assert f"[{cited.shown_source}]" in str(cited)
        assert f"{cited}" not in seen, f"twice: {cited}"
        seen.add(str(cited))
    assert len(seen) > 200


def test_versions_are_versions() -> None:
    tables = load()
    named = [version for row in tables.torch for pair in row.versions for version in pair]
    named += [version for row in tables.tensorflow for version in row.versions]
    named += [version for row in tables.mxnet.values() for version in row.versions]
    named += [*tables.known("horovod"), *(row.version for row in tables.nccl)]
    named += [version for row in tables.mpi for version in row.versions]
    for wheel in tables.torch_wheels:
        named += [one for one in (wheel.cuda, wheel.cudnn, wheel.nccl, *wheel.archs) if one]
    for version in named:
        assert VERSION.fullmatch(version), version
    for row in (*tables.torch, *tables.tensorflow, *tables.bases):
        assert all(PYTHON.fullmatch(one) for one in row.pythons), row
        assert list(row.pythons) == sorted(row.pythons, key=key), row
        assert VERSION.fullmatch(row.glibc), row
    for base in tables.bases:
        assert base.python in base.pythons and re.fullmatch(r"\d{4}-\d{2}", base.end_of_life), base
        assert base.name == f"{base.family}:{base.version}"


def test_releases_are_in_their_series_and_in_order() -> None:
    tables = load()
    for row in tables.torch:
        assert all(matches(version, row.series) for version, _ in row.versions), row
    for row in tables.tensorflow:
        assert all(matches(version, row.series) for version in row.versions), row
    for table in (tables.torch, tables.tensorflow):
        ordered = [row.series for row in table]
        assert ordered == sorted(ordered, key=key)
    ordered = [row.cuda for row in tables.cuda]
    assert ordered == sorted(ordered, key=key)
    ordered = [row.version for row in tables.nccl]
    assert ordered == sorted(ordered, key=key)


def test_wheels_and_releases_belong_together() -> None:
    tables = load()
    known = {(wheel.series, wheel.variant) for wheel in tables.torch_wheels}
    assert len(known) == len(tables.torch_wheels), "one row for each"
    for row in tables.torch:
        assert (row.series, row.variant) in known, row
        assert (row.series, "cpu") in known, row
    all_series = {row.series for row in tables.torch}
    for wheel in tables.torch_wheels:
        assert wheel.series in all_series
        digits = wheel.variant.removeprefix("cu")
        assert wheel.cuda == ("" if digits == "cpu" else f"{digits[:-1]}.{digits[-1]}"), wheel
        assert not wheel.ptx or wheel.ptx in wheel.archs, wheel


def test_references_between_tables_resolve() -> None:
    tables = load()
    names = {base.name for base in tables.bases}
    assert set(tables.packaged) == names
    for row in (*tables.cuda, *tables.user_spaces.values()):
        assert set(row.bases) <= names, row
    for row in tables.horovod_sets:
        assert row.base in names and tables.cuda_release(row.cuda), row
        assert not row.tensorflow or tables.tensorflow_release(row.tensorflow), row
        assert not row.torch or key(row.torch) < (1,) or tables.torch_release(row.torch), row
        assert not row.mxnet or any(row.mxnet in wheel.versions for wheel in tables.mxnet.values()), row
        assert not row.nccl or any(row.nccl == one.version for one in tables.nccl), row
    for wheel in tables.torch_wheels:
        assert not wheel.cuda or (tables.cuda_release(wheel.cuda) and tables.driver(wheel.cuda)), wheel
        assert not wheel.nccl or any(wheel.nccl == one.version for one in tables.nccl), wheel
    for row in tables.tensorflow:
        assert tables.cuda_release(row.cuda) and tables.driver(row.cuda), row
    for gpu in tables.gpus:
        assert gpu.capability in tables.architectures, gpu
    for floor in tables.ucx_floors:
        assert any((row.kind, row.series) == (floor.mpi, floor.series) for row in tables.mpi), floor
    packaged = [
        (row, name) for row in tables.packaged.values() for name in ("openmpi", "mpich") if row.version(name)
    ]
    for row, name in packaged:
        assert tables.mpi_series(name, row.version(name)), row


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A table of this test."""

    name: str
    many: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    yes: bool = False
    source: str = ""


def test_rows_that_are_not_well_formed_are_refused() -> None:
    for row, told in (
        ({}, "no name"),
        ({"name": "a", "nome": "b"}, "unknown key nome"),
        ({"name": "a", "many": "b"}, "not tuple"),
        ({"name": "a", "yes": "true"}, "not bool"),
    ):
        found = rows(Sample, [{"name": "a", "many": ["b"], "pairs": {"c": "d"}, "yes": True}])
        assert found == (Sample(name="a", many=("b",), pairs=(("c", "d"),), yes=True),)
        with pytest.raises(ValueError, match="two rows of one name"):
            rows_by("name", Sample, [{"name": "a"}, {"name": "b"}, {"name": "a", "yes": True}])
        with pytest.raises(ValueError, match=told):
            rows(Sample, [row])


def test_a_reference_tells_its_base() -> None:
    for reference, name in (
        ("debian:bookworm-slim", "debian:12"),
        ("debian:trixie-20260101", "debian:13"),
        ("ubuntu:noble", "ubuntu:24.04"),
        ("ubuntu:24.04@sha256:" + "0" * 64, "ubuntu:24.04"),
        ("nvidia/cuda:12.8.1-base-ubuntu24.04", "ubuntu:24.04"),
        ("nvcr.io/nvidia/cuda:9.0-cudnn7-devel-ubuntu16.04", "ubuntu:16.04"),
        ("debian", ""),
        ("debian:stable", ""),
        ("notdebian:12", ""),
        ("debian:120", ""),
        ("", ""),
    ):
        found = find_base(reference)
        assert (found.name if found else "") == name


def test_an_image_of_cuda_tells_its_version() -> None:
    for reference, told in (
        ("nvidia/cuda:12.8.1-base-ubuntu24.04", ("12.8.1", "base", False)),
        ("mirror.example.org/nvidia/cuda:9.0-cudnn7-runtime-ubuntu16.04", ("9.0", "runtime", True)),
        ("other/cuda:12.8.1-base-ubuntu24.04", None),
    ):
        found = find_cuda_image(reference)
        assert (found and (found.version, found.flavor, found.has_cudnn)) == told


def test_versions_are_compared_as_numbers() -> None:
    assert key("2.10.0") > key("2.9.1") and key("1.8.0.post0") > key("1.8.0")
    assert key("2.8.0+cu128") == key("2.8.0")
    assert matches("2.8.0", "2.8") and matches("2.8.0", "") and not matches("2.80.0", "2.8")
    assert at_least("580", "525.60.13") and at_least("12", "12.4") and not at_least("470.82", "525.60.13")
    assert series("12.8.1") == "12.8" and newest(["2.9", "2.10"]) == "2.10" and newest([]) == ""


@given(some.lists(some.tuples(some.integers(0, 20), some.integers(0, 20)), max_size=12))
def test_the_nearest_versions_are_known_and_in_order(pairs: list[tuple[int, int]]) -> None:
    known = [f"{one}.{other}" for one, other in pairs]
    found = nearest("10.10", known)
    assert set(found) <= set(known) and len(found) <= 3
    assert list(found) == sorted(found, key=key)
    assert len(found) == min(3, len(set(known)))


def test_rows_are_found_as_users_write_them() -> None:
    tables = load()
    assert tables.gpu("RTX 4090") == tables.gpu("rtx-4090") and tables.gpu("h101") is None
    release = tables.torch_release("2.8.0+cu126")
    assert release is not None and release.series == "2.8"
    assert tables.torch_release("2.8") is None, "a series is no release"
    old, new = tables.driver("10.2.89"), tables.driver("12.8.1")
    assert old is not None and old.floor == "440.33"
    assert new is not None and new.cuda == "12"
    assert tables.mpi_series("openmpi", "5.0.99") == tables.mpi_series("openmpi", "5.0.7")
    assert tables.mpi_series("openmpi", "6.0") is None
    with pytest.raises(KeyError):
        tables.rules["none-such"]


def test_the_page_of_the_tables_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "scripts/image_compatibility.py"))["page"]()
    assert (ROOT / "docs/reference/image-compatibility.md").read_text() == page, (
        "renew it: python scripts/image_compatibility.py > docs/reference/image-compatibility.md"
    )
