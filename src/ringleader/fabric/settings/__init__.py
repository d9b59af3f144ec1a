"""Variables for NCCL, UCX, libfabric, MPI and Gloo that fit the facts of one host, each with its reason."""
