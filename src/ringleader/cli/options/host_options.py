"""Options that say where a job runs and with which MPI; shared by ``run`` and ``scale``.

Numbers are read here, not by click: click stops at the first wrong word, and a user is told all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import click

from ringleader.batch_system import Allocation, find_allocation, nested_launch
from ringleader.errors import Fault
from ringleader.host_list import Parsed, apply_torchrun, merged, parse_host_list, parse_hostfile
from ringleader.job import Host, Ssh

ReadText = Callable[[str], str]
"""Takes a path, returns the file's text; raises OSError or UnicodeDecodeError."""

PLACES = ("local", "ssh", "lab")


class LabFiles(Protocol):
    """What a lab wrote for us."""

    @property
    def hostfile(self) -> str:
        """Path of its hostfile."""

    @property
    def ssh_config(self) -> str:
        """Path of its ssh configuration."""


FindLab = Callable[[], LabFiles]
"""Returns the lab that runs on this machine; raises LabError."""


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """The words of the command line that say where; as they were written."""

    hosts: tuple[str, ...] = ()
    """``-H``, each ``h1:2,h2:2``."""
    hostfile: str | None = None
    lab: bool = False
    on: str | None = None
    """``local``, ``ssh`` or ``lab``; ``None``: follows from the other options."""
    nnodes: str | None = None
    nproc_per_node: str | None = None
    no_allocation: bool = False
    ssh_port: str | None = None
    ssh_identity: str | None = None
    ssh_config: str | None = None
    accept_new_host_keys: bool = False
    network_interface: str | None = None
    mpi: str | None = None
    mpirun_arg: tuple[str, ...] = ()
    python: str | None = None
    start_timeout: str | None = None


HOST_OPTIONS: tuple[click.Option, ...] = (
    click.Option(
        ["-H", "--hosts", "hosts"],
        multiple=True,
        metavar="h1:2,h2:2",
        help="Hosts and their slots; a bare name is one slot, a name given again adds its slots. "
        "IPv6: [fe80::1]:2.",
    ),
    click.Option(
        ["--hostfile"],
        metavar="FILE",
        help="Hosts from a file, one a line: 'h1 slots=2' or 'h1:2'; a bare name takes one rank for each "
        "GPU, or else for each core.",
    ),
    click.Option(["--lab"], is_flag=True, help="The hosts of the lab that runs on this machine."),
    click.Option(
        ["--on"],
        metavar="local|ssh|lab",
        help="Where to run; follows from the other options where it is left out.",
    ),
    click.Option(
        ["--nnodes"], metavar="N", help="torchrun's word: take the first N hosts. One number, no range."
    ),
    click.Option(
        ["--nproc-per-node", "--nproc_per_node", "nproc_per_node"],
        metavar="N",
        help="torchrun's word: N ranks on every host.",
    ),
    click.Option(
        ["--no-allocation"],
        is_flag=True,
        help="Ignore the Slurm, PBS or LSF allocation that we stand in, and that srun or mpirun may have "
        "started several of us.",
    ),
    click.Option(["--ssh-port"], metavar="PORT", help="Port of every host's sshd."),
    click.Option(["--ssh-identity"], metavar="FILE", help="Private key for ssh."),
    click.Option(
        ["--ssh-config"],
        metavar="FILE",
        help="ssh configuration (jump hosts, per-host users) instead of ~/.ssh/config.",
    ),
    click.Option(
        ["--accept-new-host-keys"],
        is_flag=True,
        help="Take host keys that are not known yet; a changed key is still refused.",
    ),
    click.Option(
        ["--network-interface"],
        metavar="NAME[,NAME]",
        help="Interfaces for start-up and for the ranks' TCP traffic.",
    ),
    click.Option(
        ["--mpi"],
        metavar="MPI",
        help="embedded, openmpi5, openmpi4, mpich, intel, or the path of an mpirun or an MPI's root.",
    ),
    click.Option(
        ["--mpirun-arg"],
        multiple=True,
        metavar="WORD",
        help="One more word for mpirun's own command line, as it is; may be given again.",
    ),
    click.Option(
        ["--python"], metavar="PATH", help="Interpreter of Ringleader on every host, where it is not ours."
    ),
    click.Option(
        ["--start-timeout"], metavar="SECONDS", help="Until every rank must have started. [default: 60]"
    ),
)
"""To be put among a command's parameters; ``read_options`` takes their values out again."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Where a job shall run."""

    hosts: tuple[Host, ...] = ()
    """Empty: this machine."""
    np: int | None = None
    """Ranks, where torchrun's words say so."""
    ssh: Ssh = field(default_factory=Ssh)
    allocation: Allocation | None = None
    """The allocation the hosts come from, to be shown."""
    faults: tuple[Fault, ...] = ()


@dataclass
class Faults:
    """Collects what is wrong while values are read."""

    found: list[Fault] = field(default_factory=list)

    def add(self, where: str, what: str, hint: str = "") -> None:
        """Note one fault."""
        self.found.append(Fault(where=where, what=what, hint=hint))

    def whole(self, option: str, text: str | None) -> int | None:
        """Read a whole number, or note that it is none."""
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            self.add(option, f"{text!r} is no whole number")
            return None

    def seconds(self, option: str, text: str | None) -> float | None:
        """Read a number of seconds, or note that it is none."""
        if text is None:
            return None
        try:
            return float(text)
        except ValueError:
            self.add(option, f"{text!r} is no number of seconds", "write 90 or 1.5")
            return None

    def text_of(self, option: str, path: str, read: ReadText) -> str | None:
        """Read a file, or note why it cannot be read."""
        try:
            return read(path)
        except OSError as error:
            self.add(option, f"{path} cannot be read: {error.strerror or error}")
        except UnicodeDecodeError:
            self.add(option, f"{path} is no text file (UTF-8)")
        return None


def read_options(params: Mapping[str, Any]) -> HostOptions:
    """Take the host options out of click's parameters."""
    return HostOptions(**{part.name: params[part.name] for part in fields(HostOptions)})


def choose_hosts(
    options: HostOptions, *, environ: Mapping[str, str], read: ReadText, find_lab: FindLab
) -> Chosen:
    """Decide where a job runs: what was named, else the allocation we stand in, else this machine.

    What is wrong with words and files is in ``faults``. Raises LabError where the lab is meant and not up.
    """
    faults = Faults()
    on = _place(options, faults)
    nested = None if options.no_allocation else nested_launch(environ)
    if nested is not None:
        faults.found.append(nested)
    hosts: tuple[Host, ...] = ()
    allocation: Allocation | None = None
    config = options.ssh_config
    if on == "lab":
        hosts, config = _of_lab(config, find_lab, read, faults)
    elif options.hosts or options.hostfile is not None:
        hosts = _named(options, read, faults)
    elif on != "local" and not options.no_allocation:
        allocation = find_allocation(environ, read)
        if allocation is not None:
            hosts = allocation.hosts
            faults.found += allocation.faults
    if on == "ssh" and not hosts and not faults.found:
        faults.add("--on", "ssh needs hosts", "name them with -H h1:2,h2:2 or --hostfile")
    hosts, np, wrong = apply_torchrun(hosts, nnodes=options.nnodes, nproc_per_node=options.nproc_per_node)
    ssh = Ssh(
        port=faults.whole("--ssh-port", options.ssh_port),
        identity=options.ssh_identity,
        config=config,
        accept_new=options.accept_new_host_keys,
    )
    found = (*faults.found, *wrong)
    return Chosen(hosts=hosts, np=np, ssh=ssh, allocation=allocation, faults=found)


def shown(allocation: Allocation) -> str:
    """Return the line that tells a user which allocation was found."""
    slots = sum(host.slots or 1 for host in allocation.hosts)
    names = [f"{host.name}:{host.slots}" for host in allocation.hosts]
    some = ", ".join(names[:8]) + (f", … ({len(names)} hosts)" if len(names) > 8 else "")
    count = f"{slots} slot" if slots == 1 else f"{slots} slots"
    return (
        f"{allocation.system} allocation with {count}: {some} (from {allocation.source}"
        f"{': ' if allocation.rule else ''}{allocation.rule}; --no-allocation ignores it)"
    )


def _place(options: HostOptions, faults: Faults) -> str | None:
    """Return where to run, and note words that contradict each other."""
    given = {
        "-H": bool(options.hosts),
        "--hostfile": options.hostfile is not None,
        "--lab": options.lab or options.on == "lab",
    }
    words = [word for word, is_given in given.items() if is_given]
    if len(words) > 1:
        faults.add(" and ".join(words), "only one of them can name the hosts", "leave one of them out")
    if options.on is not None and options.on not in PLACES:
        faults.add(
            "--on",
            f"{options.on!r} is unknown",
            f"use one of {', '.join(PLACES)}; with run also kubernetes, pods",
        )
    elif options.on == "local" and words:
        faults.add(
            f"--on local and {words[0]}", "local is this machine only", f"leave out {words[0]}, or --on"
        )
    elif options.on == "ssh" and options.lab:
        faults.add("--on ssh and --lab", "they name different places", "leave one of them out")
    return "lab" if options.lab else options.on


def _named(options: HostOptions, read: ReadText, faults: Faults) -> tuple[Host, ...]:
    """Read the hosts of ``-H`` and of ``--hostfile``."""
    parsed: Sequence[Parsed] = [parse_host_list(text) for text in options.hosts]
    if options.hostfile is not None:
        text = faults.text_of("--hostfile", options.hostfile, read)
        if text is not None:
            parsed = [*parsed, parse_hostfile(text, options.hostfile)]
    for part in parsed:
        faults.found += part.faults
    return merged(host for part in parsed for host in part.hosts)


def _of_lab(
    config: str | None, find_lab: FindLab, read: ReadText, faults: Faults
) -> tuple[tuple[Host, ...], str | None]:
    """Return the lab's hosts and the ssh configuration that leads to them."""
    if config is not None:
        faults.add("--lab and --ssh-config", "the lab brings its own ssh configuration", "leave one out")
    lab = find_lab()
    text = faults.text_of("--lab", lab.hostfile, read)
    if text is None:
        return (), config
    parsed = parse_hostfile(text, lab.hostfile)
    faults.found += parsed.faults
    return parsed.hosts, lab.ssh_config
