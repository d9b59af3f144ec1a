"""What carries arrays between ranks, behind one port (`transport`).

loopback        one rank, or several that exchange nothing: the baseline of a scaling measurement
plain_mpi       MPI's calls alone, for any shape of group and for small messages
window          shared memory between the ranks of one host ("window"); `between_hosts` adds one slice per
                local rank between hosts ("hosts")
"""
