"""The engine of an elastic job: MPI lives beside the rank, in a process that mpirun started (an MPI proxy).

request_ring         the memory that a rank shares with its proxy: how it is divided (pure)
channel              a rank's requests, and which memory its proxy sees
proxy_communicator   communicators of a rank, whose calls are such requests
membership           a rank's part in a generation, from the host agent's order to its end
proxy                the program that mpirun starts: it makes the calls that a rank requests
creation             communicators between proxies: prepared, or made when all members are ready
libc_calls           system calls that Python lacks
"""
