"""docs/reference/mpijob.md says what the model says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from ringleader.kubernetes.mpijob.field_schema import FieldFlag, descriptions, field_schemas
from ringleader.kubernetes.mpijob.model import MPIJob

ROOT = Path(__file__).resolve().parents[2]
UNTOLD = {
    "metadata",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "owner_references",
    "launcher",
    "worker",
}
"""Fields that every Kubernetes object has, and those that their own kind describes."""


def test_the_page_is_up_to_date():
    page = runpy.run_path(str(ROOT / "scripts/mpijob_reference.py"))["page"]()
    assert (ROOT / "docs/reference/mpijob.md").read_text() == page, (
        "renew it: python scripts/mpijob_reference.py > docs/reference/mpijob.md"
    )


def parts(model):
    yield model
    for shape in field_schemas(model):
        if shape.is_model:
            yield from parts(shape.kind)


@pytest.mark.parametrize("model", sorted(set(parts(MPIJob)), key=str), ids=lambda model: model.__name__)
def test_every_field_is_described(model):
    told = descriptions(model)
    server = {shape.attribute for shape in field_schemas(model) if shape.has(FieldFlag.SET_BY_SERVER)}
    assert {shape.attribute for shape in field_schemas(model)} - set(told) - server <= UNTOLD
