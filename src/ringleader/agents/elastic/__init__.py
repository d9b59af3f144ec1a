"""On each host of an elastic job: its agent, what that shares with ranks and MPI proxies, the commits."""
