"""What somebody may have meant by a word that the API does not know."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from typing import Any

from ringleader.kubernetes.mpijob.document_faults import ROOT, FieldPath
from ringleader.kubernetes.mpijob.field_schema import field_schemas, is_model
from ringleader.kubernetes.mpijob.model import Spec

RENAMED = {
    "mpiDistribution": "its v2beta1 name is spec.mpiImplementation",
    "mainContainer": "v2beta1 always takes the first container: put that one first",
    "gpus": "v2beta1 counts workers: spec.mpiReplicaSpecs[Worker].replicas",
    "processingUnits": "v2beta1 counts workers: spec.mpiReplicaSpecs[Worker].replicas",
}
"""Fields of older versions that are nowhere in v2beta1."""


def unknown_field(name: str, known: Iterable[str]) -> tuple[str, str]:
    """Return what is wrong with a field of an unknown name, and what may be meant."""
    names = tuple(known)
    close = nearest(name, names)
    elsewhere = _homes().get(name, ())
    if close is not None:
        return "unknown field", f"did you mean {close}?"
    if elsewhere:
        return "unknown field here", f"it belongs to {' or '.join(elsewhere)}"
    return "unknown field", RENAMED.get(name, f"known here: {', '.join(names)}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a misspelt one is closest to, or ``None``."""
    names = {one.lower(): one for one in known}
    if name.lower() in names:
        return names[name.lower()]
    found = difflib.get_close_matches(name.lower(), list(names), n=1, cutoff=0.75)
    return names[found[0]] if found else None


@cache
def _homes() -> dict[str, tuple[str, ...]]:
    """Field name → every path in a spec where a field of that name belongs."""
    found: dict[str, tuple[str, ...]] = {}
    _collect(Spec, ROOT.field("spec"), found)
    return found


def _collect(model: Any, path: FieldPath, found: dict[str, tuple[str, ...]]) -> None:
    for shape in field_schemas(model):
        here = path.key(shape.name) if shape.is_key else path.field(shape.name)
        found[shape.name] = (*found.get(shape.name, ()), here.text)
        if is_model(shape.kind):
            _collect(shape.kind, here, found)
