"""Claims of GPUs and NICs below one PCIe root, for dynamic resource allocation. Pure.

One claim holds all that a worker gets: a constraint for each pair says that its two devices have the same
``resource.kubernetes.io/pcieRoot``. NICs are told by the attribute ``rdma`` of the driver ``dra.net``.
"""

from __future__ import annotations

from typing import Any

from ringleader.kubernetes.rdma.allocation import NicAllocation

API_VERSION = "resource.k8s.io/v1"
CLAIM = "rdma"
"""The claim's name in its Pod."""
SAME_ROOT = "resource.kubernetes.io/pcieRoot"
HAS_RDMA = 'device.driver == "dra.net" && device.attributes["dra.net"].rdma == true'


def template_name(job: str) -> str:
    """Return the name of a job's own template."""
    return f"{job}-rdma"


def template(allocation: NicAllocation, *, job: str, namespace: str) -> dict[str, Any]:
    """Return the ResourceClaimTemplate of a job, which lies in the job's namespace (empty: not said)."""
    devices: dict[str, Any] = {
        "requests": [one for index in range(allocation.count) for one in _requests(allocation, index)]
    }
    if allocation.gpus:
        devices["constraints"] = [
            {"requests": [f"gpu-{index}", f"nic-{index}"], "matchAttribute": SAME_ROOT}
            for index in range(allocation.count)
        ]
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": template_name(job), **place},
        "spec": {"spec": {"devices": devices}},
    }


def _requests(allocation: NicAllocation, index: int) -> list[dict[str, Any]]:
    gpu = {"name": f"gpu-{index}", "exactly": {"deviceClassName": allocation.gpu_class, "count": 1}}
    nic = {
        "name": f"nic-{index}",
        "exactly": {
            "deviceClassName": allocation.nic_class,
            "count": 1,
            "selectors": [{"cel": {"expression": HAS_RDMA}}],
        },
    }
    return [gpu, nic] if allocation.gpus else [nic]
