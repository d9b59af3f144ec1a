"""Every field of the model has a description, of which docs/reference/mpijob.md is made."""

import pytest

from ringleader.kubernetes.mpijob.field_schema import FieldFlag, descriptions, field_schemas
from ringleader.kubernetes.mpijob.model import MPIJob

UNTOLD = {
    *("metadata", "namespace", "labels", "annotations", "finalizers", "owner_references"),
    *("launcher", "worker"),
}
"""Fields that every Kubernetes object has, and those that their own kind describes."""


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
