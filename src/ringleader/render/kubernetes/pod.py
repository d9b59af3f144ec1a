"""What a launcher's and a worker's Pod have in common: the user's template and what is added to it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from ringleader.mpijob import object_names
from ringleader.mpijob.model import MPIJob
from ringleader.mpijob.object_metadata import JOB_ROLE, MANAGED_BY, MANAGER, REPLICA_INDEX, Document, selector


def pod_of(job: MPIJob, template: Mapping[str, Any], role: str, hostname: str) -> Document:
    """Return a new Pod template with labels, host name and restart policy of its role."""
    meta, spec = template.get("metadata") or {}, deepcopy(dict(template["spec"]))
    spec["hostname"] = hostname
    spec["subdomain"] = object_names.service(job.metadata.name)
    if spec.get("hostNetwork"):
        # The node's resolver does not know the cluster's names.
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"
    labels = {
        MANAGED_BY: MANAGER,
        **(meta.get("labels") or {}),
        **selector(job.metadata.name),
        JOB_ROLE: role,
    }
    found: Document = {"labels": labels}
    if meta.get("annotations"):
        found["annotations"] = dict(meta["annotations"])
    return {"metadata": found, "spec": spec}


def label_index(pod: Document, index: int) -> None:
    """Give a Pod of ours its place in the hostfile."""
    pod["metadata"]["labels"][REPLICA_INDEX] = str(index)


def add_volume(pod: Document, volume: Document, mount: Document) -> None:
    """Add a volume to a Pod of ours, and mount it in its first container."""
    spec = pod["spec"]
    spec["volumes"] = [*(spec.get("volumes") or ()), volume]
    first = spec["containers"][0]
    first["volumeMounts"] = [*(first.get("volumeMounts") or ()), mount]
