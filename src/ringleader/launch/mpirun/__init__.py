"""The MPI's own launcher: which one it is, and the process that runs it."""
