"""Everything that knows Kubernetes.

``client`` speaks to the API server; ``mpijob`` is the job as a value; ``objects`` and ``rdma`` make Pods and
the rest of it; ``operator`` runs jobs in the cluster, ``jobs`` is what a user does with them, ``pod`` what
runs in their Pods.
"""
