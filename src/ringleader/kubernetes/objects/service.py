"""The Service that gives the Pods of a job their names in DNS. Pure."""

from __future__ import annotations

from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.object_metadata import Document, metadata, selector


def service(job: MPIJob) -> Document:
    """Return the headless Service of a job: ``<pod>.<job>.<namespace>.svc`` is a Pod's address.

    Pods have their names from the moment they have an address, not only when they are ready: no resolver is
    given the chance to remember that there is no such name, and the daemons in the workers find the launcher
    that has just begun to call them. Whether a worker answers is for the launcher's init container to find
    out.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(job, object_names.service(job.metadata.name)),
        "spec": {
            "clusterIP": "None",
            "selector": selector(job.metadata.name),
            "publishNotReadyAddresses": True,
        },
    }
