"""Connections to the other hosts: opened once, shared by probe and MPI, closed at the end."""
