"""Options that say where a job runs and with which MPI; shared by ``run`` and ``scale``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ringleader.cli.options.option_checks import Faults, ReadText
from ringleader.cli.typed_command import Strength
from ringleader.errors import Fault
from ringleader.option_fields import flag, many, option
from ringleader.plan.batch_system import Allocation, find_allocation, nested_launch
from ringleader.plan.host_list import (
    Parsed,
    apply_torchrun,
    merge_hosts,
    parse_host_list,
    parse_hostfile,
)
from ringleader.plan.job import Host, Ssh
from ringleader.value_class import dataclass, field

if TYPE_CHECKING:
    from ringleader.lab.saved_state import Lab

PLACES = ("local", "ssh", "lab")


FindLab = Callable[["str | None"], "Lab"]
"""Returns the lab of a name, or the one that runs on this machine; raises LabError."""


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """Which hosts; how they are reached is in ``Job.ssh``."""

    hosts: tuple[str, ...] = many(
        "Hosts and slots: a bare name has one; slots of a repeated name add up. IPv6: [fe80::1]:2.",
        *("-H", "--hosts"),
        metavar="h1:2,h2:2",
    )
    hostfile: str | None = option(
        "File with a host per line: 'h1 slots=2' or 'h1:2'; a bare name has a slot per GPU, else per core.",
        metavar="FILE",
    )
    lab: bool = flag("Use the hosts of the lab on this machine.")
    lab_name: str | None = option(
        "Use the hosts of the lab of this name. [default with --lab: RINGLEADER_LAB, else `lab`, else the "
        "only one that exists]",
        metavar="NAME",
    )
    on: str | None = option(
        "Where to run. [default: inferred from other options]",
        metavar="local|ssh|lab",
        choices=PLACES,
        hint="use local, ssh or lab; in Pods: ringleader run --on kubernetes … -- ringleader …",
    )
    nnodes: str | None = option("As in torchrun: use the first N hosts (a number, not a range).", metavar="N")
    nproc_per_node: str | None = option(
        "As in torchrun: N ranks on every host.", old=("--nproc_per_node",), metavar="N"
    )
    no_allocation: bool = flag(
        "Ignore the current Slurm, PBS, or LSF allocation, even if this command was started by srun or "
        "mpirun."
    )

    @property
    def wants_lab(self) -> bool:
        """Whether the hosts are those of a lab."""
        return self.lab or self.lab_name is not None or self.on == "lab"


ON = {
    "metavar": "local|ssh|lab|slurm|kubernetes|pods",
    "choices": (*PLACES, "slurm", "kubernetes", "pods"),
    "hint": "",
    "help": "Where to run; pods: Kubernetes without an operator. [default: inferred]",
}
"""What ``--on`` is where jobs may be sent to Slurm or Kubernetes too."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Where a job shall run."""

    hosts: tuple[Host, ...] = ()
    """Empty: this machine."""
    np: int | None = None
    """Ranks, where torchrun-compatible options say so."""
    ssh: Ssh = field(default_factory=Ssh)
    allocation: Allocation | None = None
    """The allocation the hosts come from, to be shown."""
    faults: tuple[Fault, ...] = ()


def choose_hosts(
    options: HostOptions,
    ssh: Ssh,
    *,
    environ: Mapping[str, str],
    read: ReadText,
    find_lab: FindLab,
) -> Chosen:
    """Decide where a job runs: what was named, else the allocation that this runs inside, else this machine.

    What is wrong with words and files is in ``faults``. Raises LabError where the lab is meant and not up.
    """
    faults = Faults()
    on = _place(options, faults)
    nested = None if options.no_allocation else nested_launch(environ)
    if nested is not None:
        faults.found.append(nested)
    hosts: tuple[Host, ...] = ()
    allocation: Allocation | None = None
    if on == "lab":
        hosts, ssh = _of_lab(options, ssh, find_lab, read, faults)
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
    found = (*faults.found, *wrong)
    return Chosen(hosts=hosts, np=np, ssh=ssh, allocation=allocation, faults=found)


def is_to_be_sent(options: HostOptions, environ: Mapping[str, str]) -> bool:
    """Say whether a job is sent to Slurm: in an allocation, ``--on slurm`` means its nodes."""
    return options.on == "slurm" and (options.no_allocation or not environ.get("SLURM_JOB_ID"))


def bare_hosts_text(options: HostOptions) -> str:
    """Return the line that tells how many slots bare names of ``-H`` have; empty where there are none."""
    bare = [name for text in options.hosts for name in parse_host_list(text).bare]
    if not bare:
        return ""
    some = ", ".join(bare[:4]) + (f" and {len(bare) - 4} more" if len(bare) > 4 else "")
    return (
        f"-H {some}: 1 slot{' each' if len(bare) > 1 else ''}, as in Open MPI; a bare name in a hostfile has "
        f"one for each GPU or core (-H {bare[0]}:4 gives 4)"
    )


def allocation_text(allocation: Allocation) -> str:
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
        "--lab": options.wants_lab,
    }
    words = [word for word, is_given in given.items() if is_given]
    if len(words) > 1:
        faults.add(" and ".join(words), "only one of them can name the hosts", "leave one of them out")
    if options.on == "local" and words:
        faults.add(
            f"--on local and {words[0]}", "local is this machine only", f"leave out {words[0]}, or --on"
        )
    elif options.on == "slurm" and words:
        faults.add(f"--on slurm and {words[0]}", "Slurm gives the nodes", f"leave out {words[0]}, or --on")
    elif options.on == "ssh" and options.wants_lab:
        faults.add("--on ssh and --lab", "they name different places", "leave one of them out")
    return "lab" if options.wants_lab else options.on


def _named(options: HostOptions, read: ReadText, faults: Faults) -> tuple[Host, ...]:
    """Read the hosts of ``-H`` and of ``--hostfile``."""
    parsed: Sequence[Parsed] = [parse_host_list(text) for text in options.hosts]
    if options.hostfile is not None:
        text = faults.text_of("--hostfile", options.hostfile, read)
        if text is not None:
            parsed = [*parsed, parse_hostfile(text, options.hostfile)]
    for part in parsed:
        faults.found += part.faults
    return merge_hosts(host for part in parsed for host in part.hosts)


def _of_lab(
    options: HostOptions, ssh: Ssh, find_lab: FindLab, read: ReadText, faults: Faults
) -> tuple[tuple[Host, ...], Ssh]:
    """Return the lab's hosts, and ssh with the configuration that leads to them."""
    if ssh.config is not None:
        faults.add("--lab and --ssh-config", "the lab brings its own ssh configuration", "leave one out")
    lab = find_lab(options.lab_name)
    text = faults.text_of("--lab", lab.hostfile, read)
    if text is None:
        return (), ssh
    parsed = parse_hostfile(text, lab.hostfile)
    faults.found += parsed.faults
    return parsed.hosts, replace(ssh, config=lab.ssh_config)


_HOSTS = ("hosts", "hostfile", "lab", "lab_name")


def overridden(strength: Strength, params: Mapping[str, Any]) -> set[str]:
    """Return the options that say where, and that stronger ones make void.

    A file may name hosts for every job; where the command line names others, or says ``--on local``, the
    job runs there.
    """
    named = {name: strength[name] for name in _HOSTS if name in strength}
    strongest = max(named.values(), default=-1)
    void = {name for name, number in named.items() if number < strongest}
    on = strength.get("on", -1)
    if on > strongest and params["on"] != "ssh":
        return void | (set(named) - ({"lab", "lab_name"} if params["on"] == "lab" else set()))
    return void | ({"on"} if -1 < on < strongest else set())
