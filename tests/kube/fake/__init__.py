"""A stateful fake of the Kubernetes API over real HTTP; see README.md beside this file."""

from tests.kube.fake.cluster import FakeCluster
from tests.kube.fake.features import Features
from tests.kube.fake.server_process import FakeProcess
from tests.kube.fake.simulation_settings import StandInOptions

__all__ = ["FakeCluster", "FakeProcess", "Features", "StandInOptions"]
