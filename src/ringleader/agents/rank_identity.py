"""Who this rank is: its number in the MPI's environment, who started it, and the host it runs on.

Part of the program that runs on hosts that are probed, too: any Python from 3.8 on has to read it.
"""

from __future__ import annotations

import os

from ringleader.agents.light_imports import Mapping, blake2b, socket

RANK_NAMES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MPI_RANK", "SLURM_PROCID")
LOCAL_RANK_NAMES = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
SIZE_NAMES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_SIZE", "SLURM_NTASKS")

DAEMONS = ("prted", "orted", "hydra_pmi_proxy")
"""Names of the processes by which MPIs start ranks on other hosts."""


def number(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    """Return the first of these variables that holds a number."""
    for name in names:
        text = environ.get(name, "")
        if text.isascii() and text.isdigit():
            return int(text)
    return None


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - pathlib costs 5 ms
            return file.read().strip()
    except OSError:
        return ""


def host_identity(root: str = "/") -> str:
    """Equal for two names of one machine, different for two: boot, hostname, namespaces, and process 1.

    Namespaces are in it because hosts of a lab, and containers, share the kernel's boot id. Numbers of ended
    namespaces are used again: a Pod that replaces one of its name on the same node is distinguished by when
    its process 1 started, which logins and ``exec`` read alike. ``root``: the directory that stands for
    ``/``.
    """
    boot = _text(f"{root}/proc/sys/kernel/random/boot_id") or _text(f"{root}/etc/machine-id")
    words = [boot, socket.gethostname()]
    for name in ("uts", "net"):
        try:
            words.append(os.readlink(f"{root}/proc/self/ns/{name}"))  # noqa: PTH115
        except OSError:
            words.append(name)
    # proc(5): the name in parentheses may hold anything; field 22 is the start, in ticks since the boot.
    fields = _text(f"{root}/proc/1/stat").rpartition(")")[2].split()
    words.append(fields[19] if len(fields) > 19 else "")
    return " ".join(words)


def host_key(identity: str) -> str:
    """Return a short name for a host identity, fit for a directory."""
    return blake2b(identity.encode(), digest_size=6).hexdigest()


def daemon_name(pid: int) -> str:
    """Return the name of an MPI's daemon; empty for mpirun, and for a process that has ended."""
    name = _text(f"/proc/{pid}/comm")
    return name if name in DAEMONS else ""


def ipv4() -> list[tuple[str, str]]:
    """Pairs of interface and IPv4 address of this network namespace; OSError where they cannot be read."""
    import array
    import fcntl
    import struct

    room, entry = 256, 40  # struct ifreq is 40 bytes on every 64-bit Linux
    buffer = array.array("B", bytes(room * entry))
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        request = struct.pack("iL", len(buffer), buffer.buffer_info()[0])
        filled: int = struct.unpack("iL", fcntl.ioctl(sock, 0x8912, request))[0]  # SIOCGIFCONF
    finally:
        sock.close()
    raw = buffer.tobytes()[:filled]
    parts = [raw[start : start + entry] for start in range(0, len(raw), entry)]
    # An alias such as eth0:1 counts as its interface.
    return [
        (part[:16].split(b"\0")[0].decode().split(":")[0], socket.inet_ntoa(part[20:24])) for part in parts
    ]


def machine_directory(environ: Mapping[str, str]) -> str:
    """Return this machine's part of the job's directory; KeyError where the environment does not name it."""
    return f"{environ['RINGLEADER_JOB_DIR']}/{host_key(host_identity())}"
