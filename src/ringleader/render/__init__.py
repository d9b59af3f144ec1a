"""Every text that leaves us: hostfile, mpirun argv, rank environment. Pure."""
