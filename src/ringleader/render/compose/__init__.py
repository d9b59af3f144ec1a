"""Applications of one ``mpihead`` and N ``mpinode`` containers, for docker compose and for swarm. Pure.

A ``ComposeRequest`` (what was asked for) becomes an ``Application`` (everything decided), and that becomes
files: compose documents, the configuration of ssh and sshd, a hostfile. Keys are drawn elsewhere.
"""
