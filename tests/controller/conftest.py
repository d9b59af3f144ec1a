"""The fake cluster's fixtures."""

from tests.kube.conftest import fake, kubeconfig

__all__ = ["fake", "kubeconfig"]
