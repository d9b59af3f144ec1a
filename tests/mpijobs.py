"""MPIJobs as documents, for tests that send, read or decide about one."""

from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]


def mpijob(
    name: str = "train",
    *,
    workers: int = 2,
    image: str = "x",
    launcher: Mapping[str, Any] | None = None,
    worker: Mapping[str, Any] | None = None,
    launcher_pod: Mapping[str, Any] | None = None,
    worker_pod: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Document:
    """A job of this many workers; 0: of a launcher alone.

    ``launcher`` and ``worker`` add fields to the containers, ``…_pod`` to the templates' specs.
    """

    def template(role: str, container: Mapping[str, Any] | None, pod: Mapping[str, Any] | None) -> Document:
        first = {"name": role, "image": image, **(container or {})}
        return {"template": {"spec": {"containers": [first], **(pod or {})}}}

    replicas = {"Launcher": template("launcher", launcher, launcher_pod)}
    if workers:
        replicas["Worker"] = {"replicas": workers, **template("worker", worker, worker_pod)}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"mpiReplicaSpecs": replicas, **spec},
    }
