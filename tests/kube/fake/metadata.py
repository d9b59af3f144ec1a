"""Rules of names, labels and annotations, and what the server itself writes into metadata."""

import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import FieldFault, bad_value, required, too_long

_WORD = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
LABEL = re.compile(f"^{_WORD}$")
_PATH_SEGMENT = re.compile(r"^(?!\.\.?$)[^/%]+$")
_QUALIFIED = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
_ANNOTATIONS_LIMIT = 262_144
LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character"
)
_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character"
)
_LABEL_1035_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character"
)
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of generated names: without vowels, no word comes out."""


def timestamp(now: float) -> str:
    """Seconds since the epoch as the API writes a time."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str) -> float:
    """A time of the API as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def suffix() -> str:
    """A random end of a name."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(5))


def _name_rule(kind: Kind) -> tuple[re.Pattern[str], int, str]:
    if kind.group == "rbac.authorization.k8s.io":
        return _PATH_SEGMENT, 253, "may not contain '/'"
    if kind.plural == "services":
        return re.compile("^[a-z]([-a-z0-9]*[a-z0-9])?$"), 63, _LABEL_1035_WORDS
    if kind.plural == "namespaces":
        return LABEL, 63, LABEL_WORDS
    return re.compile(rf"^{_WORD}(\.{_WORD})*$"), 253, _SUBDOMAIN_WORDS


def metadata_faults(kind: Kind, metadata: dict[str, Any]) -> Iterator[FieldFault]:
    """What is wrong with an object's metadata."""
    name = metadata.get("name", "")
    pattern, limit, words = _name_rule(kind)
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif len(name) > limit:
        yield bad_value("metadata.name", name, f"must be no more than {limit} bytes")
    elif not pattern.match(name):
        yield bad_value("metadata.name", name, words)
    yield from label_faults(metadata.get("labels") or {}, "metadata.labels")
    notes = metadata.get("annotations") or {}
    if sum(len(key) + len(value or "") for key, value in notes.items()) > _ANNOTATIONS_LIMIT:
        yield too_long("metadata.annotations", _ANNOTATIONS_LIMIT)
    for key in notes:
        if not _QUALIFIED.match(key.lower()):
            yield bad_value("metadata.annotations", key, "name part must consist of alphanumeric characters")
    for place, owner in enumerate(metadata.get("ownerReferences") or ()):
        for word in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(word):
                yield required(f"metadata.ownerReferences[{place}].{word}", "must not be empty")


def label_faults(labels: dict[str, Any], field: str) -> Iterator[FieldFault]:
    for key, value in labels.items():
        if not _QUALIFIED.match(key):
            yield bad_value(field, key, "name part must consist of alphanumeric characters")
        if not _VALUE.match(value or ""):
            words = "must be no more than 63 characters" if len(value) > 63 else "a valid label must be"
            yield bad_value(field, value, f"{words} an empty string or alphanumeric characters")
