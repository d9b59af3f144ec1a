"""Jobs: defaults, validation, what may change."""

from __future__ import annotations

import copy
from typing import Any

from tests.kube.fake import pods
from tests.kube.fake.metadata import label_faults
from tests.kube.fake.refusals import FieldFault, bad_value, forbidden_field, required, unsupported

Document = dict[str, Any]
UID_LABEL = "batch.kubernetes.io/controller-uid"
NAME_LABEL = "batch.kubernetes.io/job-name"
DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates", "affinity")
"""Fields of a suspended Job's template that may change besides its labels and annotations."""


def set_defaults(job: Document) -> None:
    """Defaults of a Job that is being made; its uid is known already."""
    spec = job["spec"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault(
        "podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    )
    template = spec.setdefault("template", {})
    metadata = template.setdefault("metadata", {})
    metadata.setdefault("creationTimestamp", None)
    pods.set_template_defaults(template.setdefault("spec", {}))
    if spec["manualSelector"]:
        return
    uid, name = job["metadata"]["uid"], job["metadata"]["name"]
    labels = {"controller-uid": uid, "job-name": name, UID_LABEL: uid, NAME_LABEL: name}
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    spec.setdefault("selector", {"matchLabels": {UID_LABEL: uid}})


def faults(job: Document) -> list[FieldFault]:
    """What is wrong with a Job."""
    spec = job["spec"]
    found = []
    numbers = ("parallelism", "completions", "backoffLimit", "ttlSecondsAfterFinished")
    # A deadline of 0 is taken, although a Pod's must be above: such a Job fails at once.
    for word in (*numbers, "activeDeadlineSeconds"):
        if (spec.get(word) or 0) < 0:
            found.append(bad_value(f"spec.{word}", spec[word], "must be greater than or equal to 0"))
    policy = spec.get("podReplacementPolicy")
    if policy not in ("TerminatingOrFailed", "Failed"):
        choices = ("Failed", "TerminatingOrFailed")
        found.append(unsupported("spec.podReplacementPolicy", policy, choices))
    managed_by = spec.get("managedBy")
    if managed_by is not None and "/" not in managed_by:
        found.append(bad_value("spec.managedBy", managed_by, "must be a domain-prefixed path"))
    template = spec.get("template", {})
    inner = template.get("spec", {})
    if not inner.get("restartPolicy"):
        found.append(required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    elif inner["restartPolicy"] not in ("OnFailure", "Never"):
        found.append(
            unsupported("spec.template.spec.restartPolicy", inner["restartPolicy"], ("OnFailure", "Never"))
        )
    if spec.get("podFailurePolicy"):
        if inner.get("restartPolicy") != "Never":
            words = 'only "Never" is supported when podFailurePolicy is specified'
            found.append(bad_value("spec.template.spec.restartPolicy", inner.get("restartPolicy"), words))
        if policy == "TerminatingOrFailed":
            choices = ("Failed",)
            found.append(unsupported("spec.podReplacementPolicy", policy, choices))
    labels = (template.get("metadata") or {}).get("labels") or {}
    found += label_faults(labels, "spec.template.metadata.labels")
    return found + pods.spec_faults(inner, "spec.template.spec")


def update_faults(new: Document, old: Document) -> list[FieldFault]:
    """What of a change to a Job is not allowed."""
    before, after = old["spec"], new["spec"]
    found = [
        bad_value(f"spec.{word}", after.get(word), "field is immutable")
        for word in ("selector", "completionMode", "podFailurePolicy", "managedBy")
        if before.get(word) != after.get(word)
    ]
    if before.get("completions") != after.get("completions"):
        found.append(bad_value("spec.completions", after.get("completions"), "field is immutable"))
    template = after["template"]
    if _may_direct(old):
        template = _directed(before["template"], template)
    if template != before["template"]:
        found.append(bad_value("spec.template", "object", "field is immutable"))
    return found


def _may_direct(job: Document) -> bool:
    """A Job that is suspended and has not started (or been reset) may still be directed to nodes."""
    return bool(job["spec"].get("suspend")) and not (job.get("status") or {}).get("startTime")


def _directed(before: Document, after: Document) -> Document:
    """The new template with what may change put back to what it was."""
    found = copy.deepcopy(after)
    for word in ("labels", "annotations"):
        _put_back(found.setdefault("metadata", {}), before.get("metadata") or {}, word)
    for word in DIRECTIVES:
        _put_back(found["spec"], before["spec"], word)
    return found


def _put_back(found: Document, before: Document, word: str) -> None:
    if word in before:
        found[word] = before[word]
    else:
        found.pop(word, None)


def status_faults(new: Document, old: Document) -> list[FieldFault]:
    """What of a change to a Job's status is not allowed."""
    before, after = old.get("status") or {}, new.get("status") or {}
    suspended = bool(old["spec"].get("suspend"))
    if before.get("startTime") and before["startTime"] != after.get("startTime") and not suspended:
        words = "startTime cannot be removed or modified for unsuspended job"
        return [forbidden_field("status.startTime", words)]
    return []
