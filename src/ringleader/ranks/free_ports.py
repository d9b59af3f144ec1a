"""Ports that are free on a rank's host, held until the rank starts: who meets there takes them then."""

from __future__ import annotations

import os

from ringleader.ranks.fast_stdlib import socket

JAX_PORTS = range(61440, 65536)
"""Where JAX meets under Open MPI: it makes the port from the number of the job. Connections that a program
makes do not come from these ports, as Linux takes them from 32768 to 60999 for that."""


def any_port() -> socket.socket:
    """Return a socket bound to a port that the system chose."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("", 0))
    return sock


def jax_port(ports: range = JAX_PORTS) -> socket.socket:
    """Return a socket bound to one of ``ports`` at which nobody listens, or to any other where all are taken.

    Not for sharing (SO_REUSEADDR), unlike others: JAX's server would share its port with that of another job.
    """
    first = int.from_bytes(os.urandom(4), "little")
    for offset in range(len(ports)):
        sock = socket.socket()
        try:
            sock.bind(("", ports[(first + offset) % len(ports)]))
        except OSError:
            sock.close()
        else:
            return sock
    return any_port()
