"""Group and kind of an MPIJob, labels and owners of the objects that it becomes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringleader.kubernetes.mpijob.model import MPIJob

GROUP = "kubeflow.org"
VERSION = "v2beta1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "MPIJob"

Document = dict[str, Any]
"""An object of Kubernetes as plain JSON."""

OPERATOR_NAME = "training.kubeflow.org/operator-name"
OPERATOR = "mpi-operator"
"""Value of ``OPERATOR_NAME``: the reference controller's, so that existing tools find the Pods."""
JOB_NAME = "training.kubeflow.org/job-name"
JOB_ROLE = "training.kubeflow.org/job-role"
LAUNCHER = "launcher"
WORKER = "worker"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
MANAGED_BY = "app.kubernetes.io/managed-by"
"""Set on all that we make, so that a watch can select nothing else."""
MANAGER = "ringleader"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
JOBSET_ROLE = "jobset.sigs.k8s.io/replicatedjob-name"
"""Labels of a TrainJob's Pods, which JobSet sets."""
WORKERS = "ringleader/workers"
"""Annotation of a job that has no MPIJob."""
KUEUE = "kueue.x-k8s.io/"
KUEUE_QUEUE = f"{KUEUE}queue-name"
KUEUE_PRIORITY = f"{KUEUE}priority-class"


def document(api: str, kind: str, metadata: Document, **content: Any) -> Document:
    """Return an object of Kubernetes with its usual first fields."""
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **content}


def selector(job_name: str) -> dict[str, str]:
    """Return the labels that every Pod of a job has, and no other Pod."""
    return {OPERATOR_NAME: OPERATOR, JOB_NAME: job_name}


def owner(job: MPIJob) -> Document:
    """Return the reference that makes the garbage collector delete an object with its job."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def metadata(job: MPIJob, name: str) -> Document:
    """Return the metadata of an object of a job that is not a Pod."""
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": {"app": job.metadata.name, MANAGED_BY: MANAGER},
        "ownerReferences": [owner(job)],
    }
