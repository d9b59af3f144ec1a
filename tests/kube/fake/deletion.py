"""Rules of deletion: preconditions, dependents, grace."""

from __future__ import annotations

from tests.kube.fake import kinds
from tests.kube.fake.features import Features
from tests.kube.fake.kinds import Kind
from tests.kube.fake.options import DeleteOptions
from tests.kube.fake.refusals import conflict
from tests.kube.fake.store import Document, Entry


def propagate(kind: Kind, metadata: Document, options: DeleteOptions, on: Features) -> None:
    """Write into an object's finalizers what is to become of its dependents."""
    policy = options.propagation or _default_propagation(kind, on)
    wanted = {"Foreground": on.foreground_deletion, "Orphan": on.orphan_deletion}.get(policy, False)
    names = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
    others = [one for one in metadata.get("finalizers") or () if one not in names.values()]
    if wanted:
        others.append(names[policy])
    if others:
        metadata["finalizers"] = others
    else:
        metadata.pop("finalizers", None)


def _default_propagation(kind: Kind, on: Features) -> str:
    # batch/v1 Jobs alone leave their Pods behind when nobody says otherwise.
    return "Orphan" if kind is kinds.JOB and on.jobs_orphan_by_default else "Background"


def grace(kind: Kind, document: Document, options: DeleteOptions, on: Features) -> int:
    """Seconds that the object stays; only Pods on a node are given time."""
    if kind is not kinds.POD or not on.grace:
        return 0
    spec, status = document.get("spec", {}), document.get("status", {})
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    if options.grace is not None:
        return options.grace
    return int(spec.get("terminationGracePeriodSeconds", 30))


def answer(kind: Kind, entry: Entry, document: Document) -> Document:
    """What the request is answered with when the object has gone."""
    if kind.returns_deleted:
        return document
    details = {"name": entry.key[1], "kind": kind.plural, "uid": entry.uid}
    details |= {"group": kind.group} if kind.group else {}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


def check_preconditions(kind: Kind, entry: Entry, options: DeleteOptions, on: Features) -> None:
    """Refuse to delete another object, or another version of it, than was meant."""
    name = entry.key[1]
    if options.uid and options.uid != entry.uid and on.uid_precondition:
        words = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({entry.uid}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(kind, name, words, by_kind=True, uid=options.uid)
    if options.version and options.version != str(entry.version):
        words = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the "
            f"ResourceVersion in record ({entry.version}). The object might have been modified"
        )
        raise conflict(kind, name, words, by_kind=True)
