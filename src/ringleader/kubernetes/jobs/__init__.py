"""Jobs on Kubernetes: a request becomes an MPIJob, is sent, followed to its end, explained and deleted."""
