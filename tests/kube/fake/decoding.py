"""A request's body as an object of its kind: types checked, unknown fields dropped."""

from __future__ import annotations

from typing import Any

from tests.kube.fake import kind_rules, kind_schemas, kinds
from tests.kube.fake.features import Features
from tests.kube.fake.kinds import Kind
from tests.kube.fake.options import WriteOptions
from tests.kube.fake.refusals import bad_request
from tests.kube.fake.store import Document


def decoded(
    kind: Kind, document: Any, options: WriteOptions, features: Features
) -> tuple[Document, list[str]]:
    """Return the object and what the client is to be warned of; 400 for what cannot be read."""
    if not isinstance(document, dict):
        raise bad_request("the object provided is unrecognized (must be of type Object): not a mapping")
    _check_type(kind, document)
    if not isinstance(document.setdefault("metadata", {}), dict):
        raise bad_request("json: cannot unmarshal into Go struct field .metadata of type v1.ObjectMeta")
    dropped: list[str] = []
    try:
        new = _typed(kind, document, features, dropped)
    except kind_schemas.WrongTypeError as error:
        raise bad_request(unreadable(kind, error.go(kind.kind)))
    words = [f'unknown field "{path}"' for path in dropped]
    if words and options.strict and features.strict_fields:
        raise bad_request(unreadable(kind, f"strict decoding error: {', '.join(words)}"))
    return new, words


def unreadable(kind: Kind, words: str) -> str:
    """What the server says of a body that is not of its kind."""
    return f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {words}'


def _typed(kind: Kind, document: Document, features: Features, dropped: list[str]) -> Document:
    if kind.custom is not None:
        metadata = kind_schemas.metadata_decoder()(document["metadata"], "metadata", dropped)
        new = {**document, "metadata": metadata}
        dropped += kind.custom.take(new, features)
        return new
    new = document
    decode = kind_schemas.decoder(kind.api_version, kind.kind)
    if decode is not None and features.built_in_types:
        new = decode(document, "", dropped)
        if not features.unknown_fields:
            new = {**document, "metadata": new["metadata"]}
    if kind is kinds.SECRET and features.secret_base64 and kind_rules.bad_base64(new):
        raise bad_request(unreadable(kind, kind_rules.bad_base64(new)))
    return new


def _check_type(kind: Kind, document: Document) -> None:
    version, word = document.get("apiVersion", kind.api_version), document.get("kind", kind.kind)
    if version != kind.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({kind.api_version})"
        )
    if word != kind.kind:
        raise bad_request(f"the kind in the data ({word}) does not match the expected kind ({kind.kind})")
