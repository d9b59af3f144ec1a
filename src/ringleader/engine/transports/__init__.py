"""What carries arrays between ranks, behind one port (`transport`); `engine.window` has shared memory.

loopback        one rank, or several that exchange nothing: the baseline of a scaling measurement
plain_mpi       MPI's calls alone, for any shape of group and for small messages; `pipeline` has how long
                arrays travel in pieces, and `adasum` a reduction that MPI has not
"""
