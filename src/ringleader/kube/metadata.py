"""What an object's metadata say: uid, labels, annotations, owner, whether it is being deleted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringleader.kube.cluster import Object


def metadata_of(document: Object | None) -> Mapping[str, Any]:
    """Return an object's metadata; empty where there is no object."""
    return (document or {}).get("metadata") or {}


def uid_of(document: Object | None) -> str:
    """Return an object's uid; empty where there is no object."""
    return str(metadata_of(document).get("uid", ""))


def labels_of(document: Object | None) -> Mapping[str, str]:
    """Return an object's labels."""
    return metadata_of(document).get("labels") or {}


def annotations_of(document: Object | None) -> Mapping[str, str]:
    """Return an object's annotations."""
    return metadata_of(document).get("annotations") or {}


def is_deleting(document: Object | None) -> bool:
    """Say whether an object is being deleted."""
    return bool(metadata_of(document).get("deletionTimestamp"))


def controller_of(document: Object | None) -> Mapping[str, str]:
    """Return the owner reference of an object's controller; empty where it has none."""
    owners = metadata_of(document).get("ownerReferences") or ()
    return next((dict(owner) for owner in owners if owner.get("controller")), {})
