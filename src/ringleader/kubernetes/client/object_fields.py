"""Fields of objects as an API server sends them: metadata, and values that may be missing or odd. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringleader.kubernetes.client.cluster import Object


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


def map_in(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a map; empty where there is none."""
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def maps_in(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the maps in a list; none where there is no list."""
    found = value.get(key)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def text_in(value: Mapping[str, Any], key: str) -> str:
    """Return a text; empty where there is none."""
    return str(value.get(key) or "")


def number_in(value: Mapping[str, Any], key: str) -> int | None:
    """Return an integer, also one that is written as text; ``None`` where there is none."""
    found = value.get(key)
    if isinstance(found, str) and found.isdigit():
        return int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) else None
