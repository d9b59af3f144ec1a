"""A stateful double of the Kubernetes API over real HTTP; see README.md beside this file.

It follows Kubernetes 1.36. Create, update, delete and preconditions: apiserver's
``pkg/registry/generic/registry/store.go``; watches: ``pkg/storage/cacher``; patches and warnings:
``pkg/endpoints/handlers``; rights: ``plugin/pkg/auth/authorizer/rbac`` and
``pkg/registry/rbac/escalation_check.go``; custom resources: ``apiextensions-apiserver/pkg/apiserver``;
defaults and validation: ``pkg/apis/core`` and ``pkg/apis/batch``; what moves by itself:
``pkg/controller/{garbagecollector,job,namespace}`` and ``pkg/kubelet``.

Never compared with a real server: what `fault_injection` breaks, what Pods print and how long they take
(`simulated_kubelet`), and messages that no check of ``tests/kube/test_conformance.py`` reads.
"""

from tests.kube.fake.cluster import FakeCluster
from tests.kube.fake.simulated_job_controller import StandInOptions

__all__ = ["FakeCluster", "StandInOptions"]
