"""MPIJobs: the model of ``kubeflow.org/v2beta1``, its manifests old and new, its CRD. Pure."""
