"""A stateful fake of the Kubernetes API over real HTTP; see README.md beside this file."""

from tests.kube.fake.cluster import FakeCluster
from tests.kube.fake.features import Features

__all__ = ["FakeCluster", "Features"]
