"""Rules of names, labels and annotations, and what the server itself writes into metadata."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from typing import Any

from tests.kube.fake.features import Features
from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import FieldFault, bad_value, required

LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
LABEL_1035 = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_PATH_SEGMENT = re.compile(r"^(?!\.\.?$)[^/%]+$")
_QUALIFIED = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
ANNOTATIONS_LIMIT = 262_144

SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
LABEL_1035_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of generated names: without vowels, no word comes out."""


def timestamp(now: float) -> str:
    """Seconds since the epoch as the API writes a time."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str) -> float:
    """A time of the API as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def suffix(length: int = 5) -> str:
    """A random end of a name."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _name_rule(kind: Kind) -> tuple[re.Pattern[str], int, str]:
    if kind.group == "rbac.authorization.k8s.io":
        return _PATH_SEGMENT, 253, "may not contain '/'"
    if kind.plural == "services":
        return LABEL_1035, 63, LABEL_1035_WORDS
    if kind.plural == "namespaces":
        return LABEL, 63, LABEL_WORDS
    return SUBDOMAIN, 253, SUBDOMAIN_WORDS


def name_faults(kind: Kind, name: str, field: str = "metadata.name") -> list[FieldFault]:
    pattern, limit, words = _name_rule(kind)
    if len(name) > limit:
        return [bad_value(field, name, f"must be no more than {limit} bytes")]
    return [] if pattern.match(name) else [bad_value(field, name, words)]


def metadata_faults(kind: Kind, metadata: dict[str, Any], features: Features) -> list[FieldFault]:
    """What is wrong with an object's metadata."""
    found: list[FieldFault] = []
    name = metadata.get("name", "")
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    if features.names_validated:
        found += name_faults(kind, name)
    if features.labels_validated:
        if metadata.get("labels"):
            found += label_faults(metadata["labels"], "metadata.labels")
        found += _annotation_faults(metadata.get("annotations") or {})
    for place, owner in enumerate(metadata.get("ownerReferences") or ()):
        for word in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(word):
                found.append(required(f"metadata.ownerReferences[{place}].{word}", "must not be empty"))
    for finalizer in metadata.get("finalizers") or ():
        if not _QUALIFIED.match(finalizer):
            found.append(bad_value("metadata.finalizers", finalizer, "name part must be a qualified name"))
    return found


def label_faults(labels: dict[str, Any], field: str) -> list[FieldFault]:
    found = []
    for key, value in labels.items():
        if not _QUALIFIED.match(key):
            found.append(bad_value(field, key, "name part must consist of alphanumeric characters"))
        if not _VALUE.match(value or ""):
            words = "must be no more than 63 characters" if len(value) > 63 else "a valid label must be"
            found.append(bad_value(field, value, f"{words} an empty string or alphanumeric characters"))
    return found


def _annotation_faults(annotations: dict[str, str]) -> list[FieldFault]:
    size = sum(len(key) + len(value or "") for key, value in annotations.items())
    if size > ANNOTATIONS_LIMIT:
        words = f"Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"
        return [FieldFault(field="metadata.annotations", reason="FieldValueTooLong", message=words)]
    return [
        bad_value("metadata.annotations", key, "name part must consist of alphanumeric characters")
        for key in annotations
        if not _QUALIFIED.match(key.lower())
    ]
