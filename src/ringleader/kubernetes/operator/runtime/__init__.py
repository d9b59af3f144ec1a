"""The running operator: caches of the cluster, the passes over jobs, leadership, probes."""
