"""Files of manifests: which of their documents are MPIJobs, what lists hold, what is passed on untouched."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ringleader.errors import Fault, RequestError, collected
from ringleader.kubernetes.mpijob import train_job
from ringleader.kubernetes.mpijob.conversion import Change, convert
from ringleader.kubernetes.mpijob.document_faults import SourceLines
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.object_metadata import GROUP, KIND
from ringleader.kubernetes.mpijob.parser import read, request, write
from ringleader.kubernetes.mpijob.train_job import TrainJob, read_train_job
from ringleader.kubernetes.mpijob.yaml_text import Document


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """One document as it leaves us."""

    value: Any
    """The MPIJob with every default spelt out; any other object as it was."""
    where: str
    """``job.yaml:12``: where it came from."""
    name: str = ""
    """The job's name; empty for any other object."""
    job: MPIJob | TrainJob | None = None
    changes: tuple[Change, ...] = ()
    """What converting it changed."""


BOTH = (KIND, train_job.KIND)


def render(
    documents: Iterable[Document], *, converting: bool, source: str = "", kinds: Collection[str] = (KIND,)
) -> tuple[Rendered, ...]:
    """Read every document as a request. Raises RequestError with the faults of all of them.

    ``converting``: manifests of older versions are turned into v2beta1. Lists (``kubectl get -o yaml``) are
    taken apart. Objects of other ``kinds`` pass as they are, as long as there is one of these. ``source``
    names where the documents come from, for the case that there is none.
    """
    found: list[Rendered] = []
    faults: list[Fault] = []
    for document in (one for whole in documents for one in items(whole)):
        with collected(faults):
            found.append(_one(document, converting=converting, kinds=kinds))
    if not faults and not any(one.name for one in found):
        where = found[0].where if found else source
        hint = f"kind: {KIND}, apiVersion: {GROUP}/v2beta1"
        faults.append(Fault(where=where, what=f"there is no {' or '.join(kinds)}", hint=hint))
    if faults:
        raise RequestError(faults)
    return tuple(found)


def items(document: Document) -> tuple[Document, ...]:
    """Return the items of a list with their lines, or the document itself."""
    value = document.value
    is_list = isinstance(value, Mapping) and str(value.get("kind", "")).endswith("List")
    inner = value.get("items") if is_list else None
    if not isinstance(inner, list):
        return (document,)
    found = []
    for index, item in enumerate(inner):
        here = ("items", index)
        lines = {keys[2:]: line for keys, line in document.places.lines.items() if keys[:2] == here}
        places = SourceLines(source=document.places.source, lines=lines)
        found.append(Document(value=item, places=places))
    return tuple(found)


def _one(document: Document, *, converting: bool, kinds: Collection[str]) -> Rendered:
    where = f"{document.places.source}:{document.places.lines.get((), 1)}"
    value = document.value
    if train_job.KIND in kinds and isinstance(value, Mapping) and value.get("kind") == train_job.KIND:
        theirs = read_train_job(value, places=document.places)
        name = theirs.metadata.name or theirs.metadata.generate_name
        return Rendered(value=theirs.documents()[0], where=where, name=name, job=theirs)
    if _is_foreign(document.value):
        return Rendered(value=document.value, where=where)
    changes: tuple[Change, ...] = ()
    if converting:
        job, changes = convert(document.value, places=document.places)
    else:
        job = read(document.value, places=document.places)
    name = job.metadata.name or job.metadata.generate_name
    return Rendered(value=write(request(job)), where=where, name=name, job=job, changes=changes)


def _is_foreign(value: object) -> bool:
    """Say whether a document is an object of another kind than ours, and not one of ours misspelt."""
    if not isinstance(value, Mapping):
        return False
    kind, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        return False
    return kind.lower() != KIND.lower() and version.partition("/")[0] != GROUP
