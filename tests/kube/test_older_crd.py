"""The way from a cluster whose CRD once stored an older version, as docs/reference/operator.md tells it."""

from __future__ import annotations

import copy
import json
import urllib.error
import urllib.request
from typing import Any

from tests.kube.fake import FakeCluster
from tests.kube.fake.access import ADMIN_TOKEN

from ringleader.kubernetes.mpijob.crd import crd

NAME = "mpijobs.kubeflow.org"


def patch(cluster: FakeCluster, path: str, body: Any) -> tuple[int, str]:
    request = urllib.request.Request(
        f"{cluster.url}/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{path}",
        data=json.dumps(body).encode(),
        method="PATCH",
        headers={
            "Authorization": f"Bearer {ADMIN_TOKEN}",
            "Content-Type": "application/merge-patch+json",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def older(version: str) -> dict[str, Any]:
    """A definition that stores an older version, as mpi-operator's of that time."""
    found = copy.deepcopy(crd())
    found["spec"]["versions"][0]["name"] = version
    return found


def test_the_way_from_an_older_crd() -> None:
    for version in ("v1alpha1", "v1alpha2", "v1"):
        with FakeCluster() as cluster:
            cluster.create(older(version))
            ours = {"spec": {"versions": crd()["spec"]["versions"]}}
            status, text = patch(cluster, NAME, ours)
            assert status == 422 and "must appear in spec.versions" in text
            cluster.delete("customresourcedefinitions", NAME, "")
            made = cluster.create(crd())
            assert made["status"]["storedVersions"] == ["v2beta1"]


def test_mpi_operators_present_crd_goes_over_ours_and_back() -> None:
    with FakeCluster() as cluster:
        cluster.create(crd())
        theirs = copy.deepcopy(crd()["spec"]["versions"])
        theirs[0].pop("additionalPrinterColumns")
        assert patch(cluster, NAME, {"spec": {"versions": theirs}})[0] == 200
        assert patch(cluster, NAME, {"spec": {"versions": crd()["spec"]["versions"]}})[0] == 200
