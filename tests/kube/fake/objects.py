"""Create, change and delete objects by the rules that every kind shares.

They are those of ``apiserver/pkg/registry/generic/registry/store.go`` and ``pkg/registry/rest``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kube.fake import custom_resources, kinds
from tests.kube.fake.admission import Admission, Attempt
from tests.kube.fake.built_in_types import decoded, unreadable
from tests.kube.fake.kind_rules import bad_base64, strategy
from tests.kube.fake.kinds import Kind, Kinds
from tests.kube.fake.metadata import metadata_faults, suffix, timestamp
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
from tests.kube.fake.store import Document, Entry, Key, Store

SYSTEM_FIELDS = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Options of create, update and patch."""

    strict: bool = False
    """Unknown fields are refused (``fieldValidation=Strict``)."""
    user: str = ""
    """Who asks; empty: the cluster's own controllers."""

    @staticmethod
    def of(query: Mapping[str, str], user: str) -> WriteOptions:
        return WriteOptions(user=user, strict=query.get("fieldValidation") == "Strict")


@dataclass(frozen=True, kw_only=True)
class DeleteOptions:
    """Options of delete."""

    grace: int | None = None
    uid: str = ""
    user: str = ""

    @staticmethod
    def of(body: Mapping[str, Any], user: str) -> DeleteOptions:
        return DeleteOptions(
            user=user,
            grace=body.get("gracePeriodSeconds"),
            uid=(body.get("preconditions") or {}).get("uid") or "",
        )


PLAIN_WRITE = WriteOptions()
PLAIN_DELETE = DeleteOptions()
AT_ONCE = DeleteOptions(grace=0)


@dataclass(kw_only=True)
class Objects:
    """Every object of the cluster and the rules by which it changes."""

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

    def create(self, kind: Kind, namespace: str, document: Any, options: WriteOptions = PLAIN_WRITE) -> bytes:
        """Make an object; return it as stored."""
        new, self.warnings = self._decoded(kind, document, options)
        metadata = new["metadata"]
        self._place(kind, namespace, metadata)
        if metadata.pop("resourceVersion", "") not in ("", "0"):
            raise Refusal(500, "InternalError", "resourceVersion should not be set on objects to be created")
        self._check_namespace(kind, metadata)
        collection = self.store.collection(kind)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"][:58] + suffix()
        for word in SYSTEM_FIELDS:
            metadata.pop(word, None)
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp(self.now())}
        if kind.has_generation:
            metadata["generation"] = 1
        if kind.has_status:
            new.pop("status", None)
        self._prepare(kind, new)
        rules = strategy(kind)
        rules.begin(new)
        self._check(kind, new, None)
        self.warnings = [*self.warnings, *rules.warnings(new)]
        if (metadata.get("namespace", ""), metadata["name"]) in collection.entries:
            raise already_exists(kind, metadata["name"])
        self._check_account(kind, new)
        self._judge("CREATE", kind, options.user, new=new)
        entry = self.store.write(collection, new, None)
        return (self._serve(entry) if kind is kinds.CRD else entry).encoded

    def _decoded(self, kind: Kind, document: Any, options: WriteOptions) -> tuple[Document, list[str]]:
        new, warnings = decoded(kind, document, strict=options.strict)
        if kind is kinds.SECRET and bad_base64(new):
            raise bad_request(unreadable(kind, bad_base64(new)))
        return new, warnings

    def _place(self, kind: Kind, namespace: str, metadata: Document) -> None:
        if not kind.namespaced:
            metadata.pop("namespace", None)
        elif metadata.setdefault("namespace", namespace) != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )

    def _check_namespace(self, kind: Kind, metadata: Document) -> None:
        if not kind.namespaced:
            return
        namespace = metadata["namespace"]
        if self.find(kinds.NAMESPACE, "", namespace).is_deleting:
            words = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {"reason": "NamespaceTerminating", "field": "metadata.namespace"}
            raise forbidden(kind, metadata.get("name", ""), words, causes=[cause])

    def _check_account(self, kind: Kind, document: Document) -> None:
        """Refuse a Pod whose ServiceAccount does not exist."""
        if kind is not kinds.POD:
            return
        namespace, name = document["metadata"]["namespace"], document["spec"]["serviceAccountName"]
        known = self.store.collection(kinds.SERVICE_ACCOUNT).entries
        if name != "default" and (namespace, name) not in known:
            words = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
            raise forbidden(kind, document["metadata"]["name"], words)

    def _prepare(self, kind: Kind, new: Document) -> None:
        if kind.custom is None:
            if not isinstance(new.get("spec", {}), dict):
                raise bad_request(unreadable(kind, "spec is not an object"))
            strategy(kind).prepare(new)

    def _check(self, kind: Kind, new: Document, old: Document | None) -> None:
        judge = strategy(kind).faults if kind.custom is None else kind.custom.faults
        found = [*metadata_faults(kind, new["metadata"]), *judge(new, old)]
        if found:
            raise invalid(kind, new["metadata"].get("name", ""), found)

    def _serve(self, entry: Entry) -> Entry:
        """Begin to serve the kinds of a definition."""
        document = entry.document()
        for kind in custom_resources.kinds_of(document):
            self.kinds.add(kind)
        document["status"] = custom_resources.established(document, self.now())
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
        attempt = Attempt(
            operation=operation,
            kind=kind,
            user=user,
            namespace=metadata.get("namespace", ""),
            name=metadata.get("name", ""),
            subresource=subresource,
            new=new,
            old=old,
        )
        self.admission.judge(attempt)

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
        new, self.warnings = self._decoded(kind, document, options)
        self._check_identity(kind, entry, old, new, is_patch=is_patch)
        for word in SYSTEM_FIELDS:
            new["metadata"].pop(word, None)
            if word in old["metadata"]:
                new["metadata"][word] = old["metadata"][word]
        new = self._isolated(kind, new, old, subresource)
        if subresource == "status":
            found = strategy(kind).status_faults(new, old)
            found += kind.custom.faults(new, old) if kind.custom is not None else []
            if found:
                raise invalid(kind, entry.key[1], found)
        else:
            self._prepare(kind, new)
            self._check(kind, new, old)
        if kind.has_generation and _changed(new, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        self._judge("UPDATE", kind, options.user, new=new, old=old, subresource=subresource)
        return self._store_change(kind, entry, new, old).encoded

    def _store_change(self, kind: Kind, entry: Entry, new: Document, old: Document) -> Entry:
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if new == old:  # a write that changes nothing makes no new version
            return entry
        written = self.store.write(self.store.collection(kind), new, entry)
        if kind is kinds.CRD and new.get("spec") != old.get("spec"):
            written = self._serve(written)
        if written.is_deleting:
            metadata = new["metadata"]
            waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
            if not waits and not (kind is kinds.NAMESPACE and new["spec"].get("finalizers")):
                self._remove(kind, written)
        return written

    def _check_identity(
        self, kind: Kind, entry: Entry, old: Document, new: Document, *, is_patch: bool
    ) -> None:
        metadata, name = new["metadata"], entry.key[1]
        if metadata.setdefault("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        self._place(kind, entry.key[0], metadata)
        uid, given = metadata.get("uid"), metadata.get("resourceVersion", "")
        if uid and uid != entry.uid:
            words = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {entry.uid}"
            raise conflict(kind, name, words, uid=uid)
        if given not in ("", "0"):
            if given != old["metadata"]["resourceVersion"]:
                raise conflict(kind, name)
        elif kind.needs_version and not is_patch:
            fault = bad_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(kind, name, [fault])

    def _isolated(self, kind: Kind, new: Document, old: Document, subresource: str) -> Document:
        """Let through /status nothing but status, and everything but status otherwise."""
        if not kind.has_status:
            return new
        body, source = (old, new) if subresource == "status" else (new, old)
        found = {key: value for key, value in body.items() if key != "status"}
        found["metadata"] = dict(body["metadata"])
        return {**found, **({"status": source["status"]} if source.get("status") is not None else {})}

    # Deletion

    def delete(self, kind: Kind, entry: Entry, options: DeleteOptions = PLAIN_DELETE) -> Document:
        """Delete an object, or begin to; return what the request is answered with."""
        document = entry.document()
        metadata = document["metadata"]
        if options.uid and options.uid != entry.uid:
            words = (
                f"the UID in the precondition ({options.uid}) does not match the UID in record "
                f"({entry.uid}). The object might have been deleted and then recreated"
            )
            raise conflict(kind, entry.key[1], words, by_kind=True, uid=options.uid)
        self._judge("DELETE", kind, options.user, old=document)
        waits = bool(metadata.get("finalizers"))
        grace = _grace(kind, document, options)
        if not grace and not waits and kind is not kinds.NAMESPACE:
            self._remove(kind, entry)
            return document if kind.returns_deleted else _success(kind, entry)
        if not entry.is_deleting or grace < metadata.get("deletionGracePeriodSeconds", grace + 1):
            metadata["deletionTimestamp"] = timestamp(self.now() + grace)
            metadata["deletionGracePeriodSeconds"] = grace
        if kind is kinds.NAMESPACE:
            document["status"] = {**document.get("status", {}), "phase": "Terminating"}
        return self._store_change(kind, entry, document, entry.document()).document()

    def _remove(self, kind: Kind, entry: Entry) -> None:
        self.store.remove(self.store.collection(kind), entry)
        if kind is kinds.CRD:
            document = entry.document()
            for custom in custom_resources.kinds_of(document):
                below = self.store.collection(custom)
                for one in list(below.entries.values()):
                    self.store.remove(below, one)
                self.store.drop(custom)
            self.kinds.remove(document["spec"]["group"], document["spec"]["names"]["plural"])

    def finish_pod(self, key: Key, uid: str) -> None:
        """Take a Pod off for good, as its kubelet does when its containers have ended."""
        entry = self.store.collection(kinds.POD).entries.get(key)
        if entry is not None and entry.uid == uid:
            self.delete(kinds.POD, entry, AT_ONCE)


def _grace(kind: Kind, document: Document, options: DeleteOptions) -> int:
    """Seconds that the object stays; only Pods on a node are given time."""
    spec, phase = document.get("spec", {}), (document.get("status") or {}).get("phase")
    if kind is not kinds.POD or not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    return int(spec["terminationGracePeriodSeconds"]) if options.grace is None else options.grace


def _success(kind: Kind, entry: Entry) -> Document:
    details = {"name": entry.key[1], "kind": kind.plural, "uid": entry.uid}
    details |= {"group": kind.group} if kind.group else {}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _changed(new: Document, old: Document) -> bool:
    """Whether anything but metadata and status differs."""
    words = (new.keys() | old.keys()) - {"metadata", "status", "kind", "apiVersion"}
    return any(new.get(word) != old.get(word) for word in words)
