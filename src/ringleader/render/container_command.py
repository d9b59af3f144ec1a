"""The command line that starts a container on a host: ONE table of what differs between engines. Pure.

The container is the host with another file system: it has the host's network, names, processes and shared
memory, so ranks, their MPI and the proof of the transport see what they see without a container. Its main
process is ``agents/container_main``.

Sources: podman-run(1) of 4.3.1; docker/cli ``docs/reference/commandline/run.md``; apptainer-exec(1) of 1.4;
``doc/cmd/start.md`` of NVIDIA/enroot.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from ringleader.agents.container_main import CLIENT
from ringleader.plan.containers import mounts
from ringleader.plan.job import Job
from ringleader.value_class import dataclass

_APPTAINER = "APPTAINERENV_"
Mount = tuple[str, str, str]

_NAMED = ("podman", "docker")
"""Engines that keep containers, by name."""


@dataclass(frozen=True, kw_only=True)
class ContainerHost:
    """What a host says before a container is started there."""

    engine: str
    """Path of the engine's program."""
    user: tuple[int, int]
    """Numbers of the user and of the group."""
    groups: tuple[int, ...] = ()
    """Further groups, which may open devices."""
    devices: frozenset[str] = frozenset()
    """``infiniband``, ``nvidia``, ``cdi`` (NVIDIA's devices have a CDI specification), ``amd``."""
    image_id: str = ""
    """Names the image's content; empty where the engine names none."""
    logs: tuple[str, ...] = ()
    """The kernel's logs that this user can read."""

    @property
    def name(self) -> str:
        """Which engine it is."""
        return PurePosixPath(self.engine).name


def container_command(
    host: ContainerHost,
    job: Job,
    words: Sequence[str],
    *,
    name: str = "",
    variables: Sequence[str] = (),
    reads: bool = False,
    removes: bool = False,
) -> tuple[str, ...]:
    """Return the command that runs ``words`` in a container on a host and stays until they have ended.

    ``job``: with an absolute working directory. ``name``: the container's. ``variables``: names of variables
    that it gets; their values are in the client's environment (see ``client_variable``), never in an argument
    that ``ps`` shows. ``reads``: it reads our standard input. ``removes``: a shell waits for the client and
    removes the container where that one failed or was killed.
    """
    seen = mounts(job.workdir, job.container_mounts)
    targets = [target for _, target, _ in seen]
    seen += tuple((log, log, "ro") for log in host.logs if log not in targets and not _is_device(log))
    options = _OPTIONS[host.name](host, seen)
    words = (job.container or "", *words)
    if host.name in _NAMED:
        if host.user[0]:
            options += ("--env", f"HOME={job.workdir}")  # the image knows no home of this user
        options += ("--name", name) if name else ()
        options += ("--interactive",) if reads else ()
        words = ("--entrypoint", "", *words)
    if host.name != "apptainer":
        options += tuple(word for one in (CLIENT, *variables) for word in ("--env", one))
    start, remove = 'exec "$@"', remove_command(host, name) if removes else ()
    if remove:
        start = f'"$@"; code=$?; test $code -lt 125 || {shlex.join(remove)} >/dev/null 2>&1; exit $code'
    start = f"export {client_variable(host, CLIENT)}=$$; {start}"
    return ("/bin/sh", "-c", start, "sh", host.engine, *options, *words)


def remove_command(host: ContainerHost, name: str) -> tuple[str, ...]:
    """Return the command that removes a container whose client was killed; empty where none can be left."""
    return (host.engine, "rm", "--force", name) if host.name in _NAMED else ()


def many_daemons(hosts: int) -> dict[str, str]:
    """Return what lets Open MPI 5 and 4 open more than 128 ssh at once: in containers each stays open."""
    names = ("PRTE_MCA_plm_ssh_num_concurrent", "OMPI_MCA_plm_rsh_num_concurrent")
    return dict.fromkeys(names, str(hosts)) if hosts > 128 else {}


def client_variable(host: ContainerHost, name: str) -> str:
    """Return how a variable for the container is called in the environment of the engine's client."""
    return f"{_APPTAINER}{name}" if host.name == "apptainer" else name


def _is_device(log: str) -> bool:
    return log.startswith("/dev/")  # engines without their own /dev have it anyway


def _oci(host: ContainerHost, seen: Sequence[Mount]) -> tuple[str, ...]:
    """Return the options of podman and docker."""
    is_root, is_docker = host.user[0] == 0, host.name == "docker"
    words = ["run", "--rm", "--pull", "never"]
    words += [f"--{space}=host" for space in ("network", "ipc", "pid", "uts")]
    words += ["--security-opt", "label=disable", "--user", f"{host.user[0]}:{host.user[1]}"]
    if not is_root and is_docker:
        words += [word for group in host.groups for word in ("--group-add", str(group))]
    elif not is_root:
        words += ["--userns", "keep-id", "--group-add", "keep-groups"]
    if "infiniband" in host.devices:
        words += ["--device", "/dev/infiniband"]
        # RDMA locks memory without a limit; podman without root cannot go beyond the host's.
        words += ["--ulimit", "memlock=-1:-1"] if is_root or is_docker else []
    words += ["--device", "/dev/kfd", "--device", "/dev/dri"] if "amd" in host.devices else []
    words += [word for log in host.logs if _is_device(log) for word in ("--device", f"{log}:{log}:r")]
    if "nvidia" in host.devices:
        words += ["--gpus", "all"] if is_docker else ["--device", "nvidia.com/gpu=all"]
    for source, target, mode in seen:
        words += ["--mount", f"type=bind,source={source},target={target}{',readonly' if mode else ''}"]
    return tuple(words)


def _apptainer(host: ContainerHost, seen: Sequence[Mount]) -> tuple[str, ...]:
    # Namespaces, /dev and /tmp are the host's by default, and so are the user and HOME.
    words: tuple[str, ...] = ("exec", "--cleanenv")
    for source, target, mode in seen:
        words += ("--bind", f"{source}:{target}{mode and ':ro'}")
    words += ("--nv",) if "nvidia" in host.devices else ()
    return words + (("--rocm",) if "amd" in host.devices else ())


def _enroot(host: ContainerHost, seen: Sequence[Mount]) -> tuple[str, ...]:
    # Namespaces, /dev and the user are the host's; its hook for NVIDIA reads the variable.
    words: tuple[str, ...] = ("start",)
    for source, target, mode in seen:
        words += ("--mount", f"{source}:{target}{mode and ':none:x-create=auto,bind,ro'}")
    return words + (("--env", "NVIDIA_VISIBLE_DEVICES=all") if "nvidia" in host.devices else ())


_OPTIONS: dict[str, Callable[[ContainerHost, Sequence[Mount]], tuple[str, ...]]] = {
    "podman": _oci,
    "docker": _oci,
    "apptainer": _apptainer,
    "enroot": _enroot,
}
"""Engine → its options for a host."""
