"""Create, change and delete objects by the rules that every kind shares.

They are those of ``apiserver/pkg/registry/generic/registry/store.go`` and ``pkg/registry/rest``.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.kube.fake import custom_resources, kinds
from tests.kube.fake.admission import Admission
from tests.kube.fake.built_in_types import decoded
from tests.kube.fake.kinds import Kind, Kinds
from tests.kube.fake.refusals import (
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from tests.kube.fake.rules import metadata_faults, rules_of, timestamp
from tests.kube.fake.store import Document, Entry, Store

SYSTEM_FIELDS = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")


@dataclass(kw_only=True)
class Objects:
    """Every object of the cluster and the rules by which it changes; no ``user``: the cluster itself."""

    store: Store
    kinds: Kinds
    now: Callable[[], float]
    warnings: list[str] = field(default_factory=list)
    """What the request that is being served is to be warned of."""

    def __post_init__(self) -> None:
        self.admission = Admission(self.store)

    def find(self, kind: Kind, namespace: str, name: str) -> Entry:
        """Return an object or refuse with 404."""
        entry = self.store.collection(kind).entries.get((namespace, name))
        if entry is None:
            raise not_found(kind, name)
        return entry

    # Creation

    def create(
        self, kind: Kind, namespace: str, document: Any, *, user: str = "", strict: bool = False
    ) -> bytes:
        """Make an object; return it as stored."""
        new, self.warnings = decoded(kind, document, strict=strict)
        metadata = new["metadata"]
        self._place(kind, namespace, metadata)
        if kind.namespaced:
            self._check_namespace(kind, metadata)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"][:58] + f"{secrets.randbelow(10**5):05}"
        for word in SYSTEM_FIELDS:
            metadata.pop(word, None)
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp(self.now())}
        if kind.has_generation:
            metadata["generation"] = 1
        if kind.has_status:
            new.pop("status", None)
        rules = rules_of(kind)
        rules.prepare(new)
        self._check(kind, new, None)
        self.warnings += rules.warnings(new)
        collection = self.store.collection(kind)
        if (metadata.get("namespace", ""), metadata["name"]) in collection.entries:
            raise already_exists(kind, metadata["name"])
        self._check_account(kind, new)
        self.admission.judge("CREATE", kind, user, metadata, new=new)
        if kind is kinds.CRD:
            self._serve(new)
        return self.store.write(collection, new, None).encoded

    def _place(self, kind: Kind, namespace: str, metadata: Document) -> None:
        if not kind.namespaced:
            metadata.pop("namespace", None)
        elif metadata.setdefault("namespace", namespace) != namespace:
            words = "the namespace of the provided object does not match the namespace sent on the request"
            raise bad_request(words)

    def _check_namespace(self, kind: Kind, metadata: Document) -> None:
        namespace = metadata["namespace"]
        if self.find(kinds.NAMESPACE, "", namespace).is_deleting:
            words = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(kind, metadata.get("name", ""), words)

    def _check_account(self, kind: Kind, document: Document) -> None:
        """Refuse a Pod whose ServiceAccount does not exist."""
        if kind is not kinds.POD:
            return
        namespace, name = document["metadata"]["namespace"], document["spec"]["serviceAccountName"]
        known = self.store.collection(kinds.SERVICE_ACCOUNT).entries
        if name != "default" and (namespace, name) not in known:
            words = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
            raise forbidden(kind, document["metadata"]["name"], words)

    def _check(self, kind: Kind, new: Document, old: Document | None) -> None:
        judge = rules_of(kind).faults if kind.custom is None else kind.custom.faults
        found = [*metadata_faults(kind, new["metadata"]), *judge(new, old)]
        if found:
            raise invalid(kind, new["metadata"].get("name", ""), found)

    def _serve(self, definition: Document) -> None:
        """Begin to serve the kinds of a definition."""
        for kind in custom_resources.kinds_of(definition):
            self.kinds.add(kind)
        served = {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"}
        definition["status"] = {"conditions": [served]}

    # Change

    def update(
        self,
        kind: Kind,
        entry: Entry,
        document: Any,
        *,
        user: str = "",
        subresource: str = "",
    ) -> bytes:
        """Replace an object by another version of it; return it as stored."""
        old = entry.document()
        new, self.warnings = decoded(kind, document)
        self._check_identity(kind, entry, new)
        for word in SYSTEM_FIELDS:
            new["metadata"].pop(word, None)
            if word in old["metadata"]:
                new["metadata"][word] = old["metadata"][word]
        new = self._isolated(kind, new, old, subresource)
        if subresource == "status":
            found = [*rules_of(kind).status_faults(new, old)]
            found += kind.custom.faults(new, old) if kind.custom is not None else []
            if found:
                raise invalid(kind, entry.key[1], found)
        else:
            rules_of(kind).prepare(new)
            self._check(kind, new, old)
        if kind.has_generation and _changed(new, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        self.admission.judge("UPDATE", kind, user, new["metadata"], new=new, old=old, below=subresource)
        return self._store_change(kind, entry, new, old).encoded

    def _store_change(self, kind: Kind, entry: Entry, new: Document, old: Document) -> Entry:
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if new == old:  # a write that changes nothing makes no new version
            return entry
        written = self.store.write(self.store.collection(kind), new, entry)
        waits = [new["metadata"].get(word) for word in ("finalizers", "deletionGracePeriodSeconds")]
        if written.is_deleting and kind is not kinds.NAMESPACE and not any(waits):
            self.remove(kind, written)
        return written

    def _check_identity(self, kind: Kind, entry: Entry, new: Document) -> None:
        metadata, name = new["metadata"], entry.key[1]
        if metadata.setdefault("name", name) != name:
            words = f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            raise bad_request(words)
        self._place(kind, entry.key[0], metadata)
        uid, given = metadata.get("uid"), metadata.get("resourceVersion", "")
        if uid and uid != entry.uid:
            words = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {entry.uid}"
            raise conflict(kind, name, words)
        if given not in ("", "0", str(entry.version)):
            raise conflict(kind, name)

    def _isolated(self, kind: Kind, new: Document, old: Document, subresource: str) -> Document:
        """Let through /status nothing but status, and everything but status otherwise."""
        if not kind.has_status:
            return new
        body, source = (old, new) if subresource == "status" else (new, old)
        found = {key: value for key, value in body.items() if key != "status"}
        found["metadata"] = dict(body["metadata"])
        return {**found, **({"status": source["status"]} if source.get("status") is not None else {})}

    # Deletion

    def delete(
        self, kind: Kind, entry: Entry, *, grace: int | None = None, uid: str = "", user: str = ""
    ) -> Document:
        """Delete an object, or begin to; return its last state so far."""
        document = entry.document()
        metadata = document["metadata"]
        if uid not in ("", entry.uid):
            words = f"the UID in the precondition ({uid}) does not match the UID in record ({entry.uid})"
            raise conflict(kind, entry.key[1], words)
        self.admission.judge("DELETE", kind, user, metadata, old=document)
        grace = _grace(kind, document, grace)
        if not grace and not metadata.get("finalizers") and kind is not kinds.NAMESPACE:
            self.remove(kind, entry)
            return document
        if not entry.is_deleting or grace < metadata["deletionGracePeriodSeconds"]:
            metadata["deletionTimestamp"] = timestamp(self.now() + grace)
            metadata["deletionGracePeriodSeconds"] = grace
        if kind is kinds.NAMESPACE:
            document["status"] = {"phase": "Terminating"}
        return self._store_change(kind, entry, document, entry.document()).document()

    def remove(self, kind: Kind, entry: Entry) -> None:
        """Take an object off for good."""
        self.store.remove(self.store.collection(kind), entry)
        for custom in custom_resources.kinds_of(entry.document()) if kind is kinds.CRD else ():
            self.store.drop(custom)
            self.kinds.remove(custom)


def _grace(kind: Kind, document: Document, asked: int | None) -> int:
    """Seconds that the object stays; only Pods on a node are given time."""
    spec, phase = document.get("spec", {}), (document.get("status") or {}).get("phase")
    if kind is not kinds.POD or not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    return int(spec["terminationGracePeriodSeconds"]) if asked is None else asked


def _changed(new: Document, old: Document) -> bool:
    """Whether anything but metadata and status differs."""
    words = (new.keys() | old.keys()) - {"metadata", "status", "kind", "apiVersion"}
    return any(new.get(word) != old.get(word) for word in words)
