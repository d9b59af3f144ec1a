"""The engine of an elastic job: MPI lives beside the rank, in a process that mpirun started (an MPI proxy).

mapped_memory     shared memory as a proxy sees it
request_ring      the memory that a rank shares with its proxy: how it is divided (pure)
block_allocator   which parts of a piece of memory are in use (pure)
call_table        calls, element types and operations by number, as they stand in requests (pure)
rank_memory       which memory of a rank its proxy sees, and room for what it does not
requests          a rank's requests: made, looked at, waited for
stand_in          what the engine has in place of mpi4py's MPI
communicators     communicators of the stand-in
datatypes         element types of the stand-in
membership        a rank's part in a generation, from the host agent's order to its end
proxy             the program that mpirun starts
proxy_generation  what a proxy does for its rank in one generation
descriptor_wait   waiting for descriptors with short timeouts
creation          communicators between proxies: made only when all members are ready, so none hangs
"""
