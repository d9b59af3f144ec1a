"""What Ringleader relies on in a Kubernetes API server, as checks that any server can be put to.

They run against the fake by default and against a real cluster when ``TEST_KUBECONFIG`` names a kubeconfig.
"""
