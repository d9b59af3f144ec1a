"""Create, change and delete objects by the rules that every kind shares."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.kube.fake import definitions, deletion, kind_rules, kinds
from tests.kube.fake.admission import Admission, Attempt
from tests.kube.fake.decoding import decoded, unreadable
from tests.kube.fake.features import Features
from tests.kube.fake.kinds import Kind, Kinds
from tests.kube.fake.metadata import metadata_faults, suffix, timestamp
from tests.kube.fake.options import DeleteOptions, WriteOptions
from tests.kube.fake.refusals import (
    Refusal,
    already_exists,
    bad_request,
    bad_value,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from tests.kube.fake.store import Collection, Document, Entry, Key, Store

Admit = Callable[[Kind, Document], None]
PLAIN_WRITE = WriteOptions()
SYSTEM_FIELDS = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")


@dataclass(kw_only=True)
class Objects:
    """Every object of the cluster and the rules by which it changes."""

    store: Store
    kinds: Kinds
    features: Features
    now: Callable[[], float]
    admit: list[Admit] = field(default_factory=list)
    """Called with each object before it is made; a Refusal stops it."""
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

    def create(self, kind: Kind, namespace: str, document: Any, options: WriteOptions = PLAIN_WRITE) -> bytes:
        """Make an object; return it as stored."""
        new, self.warnings = decoded(kind, document, options, self.features)
        metadata = new["metadata"]
        self._place(kind, namespace, metadata)
        if metadata.pop("resourceVersion", "") not in ("", "0"):
            raise Refusal(500, "InternalError", "resourceVersion should not be set on objects to be created")
        self._check_namespace(kind, metadata)
        collection = self.store.collection(kind)
        self._name(collection, metadata)
        self._system_fields(kind, metadata)
        if kind.has_status and self.features.status_isolation:
            new.pop("status", None)
        self._prepare(kind, new, None)
        strategy = kind_rules.strategy(kind)
        if self.features.built_in_defaults or kind is kinds.NAMESPACE:
            strategy.begin(new)
        self._check(kind, new, None)
        if self.features.field_warnings:
            self.warnings = [*self.warnings, *strategy.warnings(new)]
        key = (metadata.get("namespace", ""), metadata["name"])
        old = collection.entries.get(key)
        if old is not None and self.features.already_exists:
            raise already_exists(kind, metadata["name"])
        for admit in self.admit:
            admit(kind, new)
        self._judge("CREATE", kind, options.user, new=new)
        if options.dry_run and self.features.dry_run:
            return self.store.entry(collection, new).encoded
        entry = self.store.write(collection, new, old, next_version=self.features.monotonic_version)
        if kind is kinds.CRD:
            entry = self._serve(entry)
        return entry.encoded

    def _place(self, kind: Kind, namespace: str, metadata: Document) -> None:
        if not kind.namespaced:
            metadata.pop("namespace", None)
            return
        if metadata.setdefault("namespace", namespace) != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )

    def _check_namespace(self, kind: Kind, metadata: Document) -> None:
        if not kind.namespaced:
            return
        namespace = metadata["namespace"]
        entry = self.store.collection(kinds.NAMESPACE).entries.get(("", namespace))
        if entry is None:
            if self.features.namespace_must_exist:
                raise not_found(kinds.NAMESPACE, namespace)
        elif entry.is_deleting and self.features.namespace_terminating:
            words = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise forbidden(kind, metadata.get("name", ""), words, causes=[cause])

    def _name(self, collection: Collection, metadata: Document) -> None:
        prefix = metadata.get("generateName")
        if metadata.get("name") or not prefix or not self.features.generate_name:
            return
        while True:
            metadata["name"] = prefix[:58] + suffix()
            if (metadata.get("namespace", ""), metadata["name"]) not in collection.entries:
                return

    def _system_fields(self, kind: Kind, metadata: Document) -> None:
        for word in SYSTEM_FIELDS:
            metadata.pop(word, None)
        metadata["uid"] = str(uuid.uuid4()) if self.features.uid else ""
        metadata["creationTimestamp"] = timestamp(self.now())
        if kind.has_generation and self.features.generation:
            metadata["generation"] = 1

    def _prepare(self, kind: Kind, new: Document, old: Document | None) -> None:
        if kind.custom is None and self.features.built_in_defaults:
            if not isinstance(new.get("spec", {}), dict):
                raise bad_request(unreadable(kind, "spec is not an object"))
            if "spec" not in new and kind in (kinds.JOB, kinds.POD, kinds.SERVICE):
                new["spec"] = {}
            kind_rules.strategy(kind).prepare(new)

    def _check(self, kind: Kind, new: Document, old: Document | None) -> None:
        found = metadata_faults(kind, new["metadata"], self.features)
        if kind.custom is not None:
            found += kind.custom.faults(new, old, self.features)
        else:
            found += kind_rules.strategy(kind).faults(new, old, self.features)
        if found:
            raise invalid(kind, new["metadata"].get("name", ""), found)

    def _serve(self, entry: Entry) -> Entry:
        """Begin to serve the kinds of a definition."""
        document = entry.document()
        if self.features.crd_install:
            for kind in definitions.kinds_of(document):
                self.kinds.add(kind)
        document["status"] = definitions.established(document, self.now())
        return self.store.write(self.store.collection(kinds.CRD), document, entry)

    def _judge(
        self,
        operation: str,
        kind: Kind,
        user: str,
        *,
        new: Document | None = None,
        old: Document | None = None,
        subresource: str = "",
    ) -> None:
        metadata = (new or old or {}).get("metadata", {})
        self.admission.judge(
            Attempt(
                operation=operation,
                kind=kind,
                user=user,
                namespace=metadata.get("namespace", ""),
                name=metadata.get("name", ""),
                subresource=subresource,
                new=new,
                old=old,
            )
        )

    # Change

    def update(
        self,
        kind: Kind,
        entry: Entry,
        document: Any,
        options: WriteOptions = PLAIN_WRITE,
        *,
        subresource: str = "",
        is_patch: bool = False,
    ) -> bytes:
        """Replace an object by another version of it; return it as stored."""
        old = entry.document()
        new, self.warnings = decoded(kind, document, options, self.features)
        self._check_identity(kind, entry, old, new, is_patch=is_patch)
        for word in SYSTEM_FIELDS:
            new["metadata"].pop(word, None)
            if word in old["metadata"]:
                new["metadata"][word] = old["metadata"][word]
        self._isolate(kind, new, old, subresource)
        if subresource != "status":
            self._prepare(kind, new, old)
        if kind.has_generation and self.features.generation and _changed(new, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        if subresource == "status":
            found = kind_rules.strategy(kind).status_faults(new, old)
            if kind.custom is not None:
                found += kind.custom.faults(new, old, self.features)
            if found:
                raise invalid(kind, entry.key[1], found)
        else:
            self._check(kind, new, old)
        self._judge("UPDATE", kind, options.user, new=new, old=old, subresource=subresource)
        if options.dry_run and self.features.dry_run:
            return self.store.entry(self.store.collection(kind), new).encoded
        return self._store_change(kind, entry, new, old).encoded

    def _store_change(self, kind: Kind, entry: Entry, new: Document, old: Document) -> Entry:
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if new == old and self.features.no_op_update:
            return entry
        collection = self.store.collection(kind)
        written = self.store.write(collection, new, entry, next_version=self.features.monotonic_version)
        if kind is kinds.CRD and new.get("spec") != old.get("spec"):
            written = self._serve(written)
        return self._finish_deletion(kind, written, new) if written.is_deleting else written

    def _check_identity(
        self, kind: Kind, entry: Entry, old: Document, new: Document, *, is_patch: bool
    ) -> None:
        metadata = new["metadata"]
        name = entry.key[1]
        if metadata.setdefault("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        self._place(kind, entry.key[0], metadata)
        uid = metadata.get("uid")
        if uid and uid != entry.uid and self.features.uid_precondition:
            words = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {entry.uid}"
            raise conflict(kind, name, words, uid=uid)
        given = metadata.get("resourceVersion", "")
        checked = self.features.stale_patch if is_patch else self.features.stale_put
        if given not in ("", "0"):
            if given != old["metadata"]["resourceVersion"] and checked:
                raise conflict(kind, name)
        elif kind.needs_version and not is_patch and self.features.put_needs_version:
            fault = bad_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(kind, name, [fault])

    def _isolate(self, kind: Kind, new: Document, old: Document, subresource: str) -> None:
        """Let through /status nothing but status, and everything but status otherwise."""
        if not kind.has_status or not self.features.status_isolation:
            return
        if subresource == "status":
            status = new.get("status")
            managed = new["metadata"].get("managedFields")
            new.clear()
            new.update(old)
            new["metadata"] = dict(old["metadata"])
            if managed is not None:
                new["metadata"]["managedFields"] = managed
            source: Document = {} if status is None else {"status": status}
        else:
            source = old
        new.pop("status", None)
        if "status" in source:
            new["status"] = source["status"]

    # Deletion

    def delete(self, kind: Kind, entry: Entry, options: DeleteOptions) -> Document:
        """Delete an object, or begin to; return what the request is answered with."""
        on = self.features
        deletion.check_preconditions(kind, entry, options, on)
        document = entry.document()
        self._judge("DELETE", kind, options.user, old=document)
        if options.dry_run and on.dry_run:
            return deletion.answer(kind, entry, document)
        metadata = document["metadata"]
        deletion.propagate(kind, metadata, options, on)
        grace = deletion.grace(kind, document, options, on)
        waits = bool(metadata.get("finalizers")) and on.finalizers
        waits = waits or (kind is kinds.NAMESPACE and on.namespace_deletion)
        if not grace and not waits:
            self._remove(kind, self.store.collection(kind), entry)
            return deletion.answer(kind, entry, document)
        is_sooner = grace < metadata.get("deletionGracePeriodSeconds", grace + 1)
        if not entry.is_deleting or is_sooner:
            metadata["deletionTimestamp"] = timestamp(self.now() + grace)
            metadata["deletionGracePeriodSeconds"] = grace
            if kind.has_generation and "generation" in metadata and not entry.is_deleting:
                metadata["generation"] += 1
        if kind is kinds.NAMESPACE:
            document["status"] = {**document.get("status", {}), "phase": "Terminating"}
        written = self._store_change(kind, entry, document, entry.document())
        return written.document()

    def _finish_deletion(self, kind: Kind, entry: Entry, document: Document) -> Entry:
        """Remove an object that waited for nothing but its last finalizer."""
        metadata = document["metadata"]
        if metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
            return entry
        if kind is kinds.NAMESPACE and document.get("spec", {}).get("finalizers"):
            return entry
        self._remove(kind, self.store.collection(kind), entry)
        return entry

    def _remove(self, kind: Kind, collection: Collection, entry: Entry) -> None:
        self.store.remove(collection, entry)
        if kind is kinds.CRD:
            document = entry.document()
            for custom in definitions.kinds_of(document):
                below = self.store.collection(custom)
                for one in list(below.entries.values()):
                    self.store.remove(below, one)
                self.store.drop(custom)
            self.kinds.remove(document["spec"]["group"], document["spec"]["names"]["plural"])

    def finish_pod(self, key: Key, uid: str) -> None:
        """Take a Pod off for good, as its kubelet does when its containers have ended."""
        entry = self.store.collection(kinds.POD).entries.get(key)
        if entry is not None and entry.uid == uid:
            self.delete(kinds.POD, entry, DeleteOptions(grace=0, propagation="Background"))


def _changed(new: Document, old: Document) -> bool:
    """Whether anything but metadata and status differs."""
    words = (new.keys() | old.keys()) - {"metadata", "status", "kind", "apiVersion"}
    return any(new.get(word) != old.get(word) for word in words)
