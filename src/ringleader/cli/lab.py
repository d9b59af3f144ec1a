"""``ringleader lab``: a cluster on one machine, and faults of its hosts on request."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import click

from ringleader.cli.output import JsonOptions, show, table
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import REPLACE, Command
from ringleader.errors import Fault, LabError, RefusedError, RequestError, RingleaderError, collected, refuse
from ringleader.lab import down as lab_down
from ringleader.lab import fault_injection, host_shell, host_status, kernel_state, requirements, saved_state
from ringleader.lab import up as lab_up
from ringleader.lab.removal_plan import down_phase
from ringleader.lab.rootfs_inspection import rootfs_of_options
from ringleader.lab.setup_plan import up_phases
from ringleader.lab.slow_link import slow_link_of, slow_steps
from ringleader.lab.spec import (
    DEFAULT_NAME,
    LabSpec,
    check_name,
    directory_of,
    format_rate,
    free_subnet,
    spec_of,
)
from ringleader.lab.steps import Phase, script
from ringleader.option_fields import argument, flag, group, many, option, spellings_set


@dataclass(frozen=True, kw_only=True)
class LabOptions:
    """A lab that there is."""

    name: str | None = option(
        "Which lab. [default: RINGLEADER_LAB, else `lab`, else the only one there is]",
        *("--name", "--lab-name"),
        envvar=saved_state.VARIABLE,
        metavar="NAME",
    )


@dataclass(frozen=True, kw_only=True)
class HostOptions(LabOptions):
    """A host of a lab."""

    host: str = argument("HOST")


def _to_host(
    change: Callable[[saved_state.Lab, saved_state.LabHost], None],
) -> Callable[[HostOptions], None]:
    """Return what a command does that changes one host."""

    def run(options: HostOptions) -> None:
        requirements.check_machine(os.environ)
        lab = saved_state.current(options.name)
        change(lab, fault_injection.find_host(lab, options.host))

    return run


@dataclass(frozen=True, kw_only=True)
class SlowOptions(HostOptions):
    """The options of ``lab slow``."""

    into: str | None = option("Rate of what reaches the host: 100mbit.", metavar="RATE")
    out_of: str | None = option("Rate of what the host sends.", metavar="RATE")
    delay: str | None = option(
        "Delay of each frame, 200us or 1ms: in the directions that have a rate, else in both.", metavar="TIME"
    )
    off: bool = flag("Give the link the rates of `lab up` back, both ways.")
    dry_run: bool = flag("Print, as a shell script, what would be done.")


def slow(options: SlowOptions) -> None:
    """Slow a host's link down, one way or both, as a bad cable or a port at a lower rate does."""
    faults: list[Fault] = []
    with collected(faults):
        limit = slow_link_of(into=options.into, out_of=options.out_of, delay=options.delay, off=options.off)
    try:
        lab = saved_state.current(options.name)
        host = fault_injection.find_host(lab, options.host)
    except RingleaderError as error:
        if not faults:
            raise
        faults += error.faults
    refuse(faults)
    if options.dry_run:
        steps = slow_steps(lab.spec, lab.number(host), limit)
        print(script((Phase(title=f"the link of {host.name}", steps=tuple(steps)),)), end="")
        return
    requirements.check_machine(os.environ)
    fault_injection.slow(lab, host, limit)


_FAULTS = {
    "cut": (
        fault_injection.cut,
        "Cut a host's link: its peers see silence, as with a pulled cable behind a switch.",
    ),
    "heal": (fault_injection.heal, "Mend a host's link, and start the host again where it was killed."),
    "kill": (fault_injection.kill, "Kill every process on a host, its sshd included."),
}


@click.group(name="lab")
def command() -> None:
    """A cluster on one machine: real network namespaces, rate-limited links, an sshd per host.

    Needs root. `ringleader run --lab` runs on it; `ssh -F "$(ringleader lab status --ssh-config)" h1` works.
    """


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """The options of ``lab up``, as they were written."""

    hosts: int = option("Number of hosts, h1 … hN.", default=4)
    slots: int = option("Slots of each host in the hostfile.", default=2)
    bandwidth: str = option("Rate of each host's link, each way.", default="8gbit")
    latency: str = option("Delay of each frame, each way: 200us, 1ms.", default="0")
    ssh_port: int = option("Port of each host's sshd.", default=33)
    subnet: str | None = option("Private network; by default the first free 10.213.x.0/24.")
    private_tmp: bool = flag("Give each host its own, empty /tmp.")
    root: str | None = option("Root file system of the hosts: the tree of an unpacked image.", metavar="DIR")
    bind: tuple[str, ...] = many("With --root: also this of the machine.", metavar="SRC:DST[:ro]")
    rdma: bool = flag("Hosts are emulated machines (QEMU) with Soft-RoCE: real verbs.")
    kernel: str | None = option(
        "With --rdma: where a kernel's package is unpacked. [default: /]", metavar="DIR"
    )
    name: str = option(
        "Tells several labs apart.",
        *("--name", "--lab-name"),
        default=DEFAULT_NAME,
        envvar=saved_state.VARIABLE,
        metavar="NAME",
    )
    replace: bool = flag("Take a lab of that name down first.", *REPLACE)
    dry_run: bool = flag("Print, as a shell script, what would be done.")


def up(options: UpOptions) -> None:
    """Make a lab; one that is up already is left alone."""
    name = options.name
    present = _spec_of_present(name)
    known = present.subnet if present else None
    place = directory_of(name, str(saved_state.ROOT))
    tree, faults = rootfs_of_options(options.root, options.bind, lab_directory=place)
    faults += _rdma_faults(options)
    spec = spec_of(
        name=name,
        hosts=options.hosts,
        slots=options.slots,
        bandwidth=options.bandwidth,
        latency=options.latency,
        ssh_port=options.ssh_port,
        subnet=options.subnet or known or _free_subnet(),
        private_tmp=options.private_tmp,
        tree=tree,
        kernel=os.path.realpath(options.kernel or "/") if options.rdma else "",
        further=[*requirements.port_faults(options.ssh_port), *faults],
    )
    if options.dry_run:
        machine = requirements.machine(spec, os.environ, saved_state.ROOT)
        print(script(up_phases(spec, machine)), end="")
        return
    requirements.check_machine(os.environ)
    if spec.kernel and (found := requirements.machine_faults(spec, os.environ)):
        raise RefusedError(found)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    line = ProgressLine(prefix="lab: ")
    try:
        made = lab_up.up(
            spec,
            environ=os.environ,
            progress=line.show,
            replace_it=options.replace,
            any_subnet=options.subnet is None,
        )
    finally:
        line.clear()
    _report_up(made)


def _rdma_faults(options: UpOptions) -> list[Fault]:
    if not options.rdma:
        hint = "add --rdma, or leave it out"
        return [Fault(where="--kernel", what="is for emulated machines", hint=hint)] if options.kernel else []
    what, hint = "emulated machines run on this machine's files, each with its own /tmp", "leave one out"
    both = spellings_set(options, "root private_tmp")
    return [Fault(where=f"--rdma and {one}", what=what, hint=hint) for one in both]


def _spec_of_present(name: str) -> LabSpec | None:
    try:
        return saved_state.load(name).spec
    except (LabError, RequestError):
        return None


def _free_subnet() -> str:
    try:
        return free_subnet({*kernel_state.networks_in_use(), *saved_state.subnets(saved_state.names())})
    except (OSError, LabError):
        return LabSpec().subnet


def _report_up(made: lab_up.Made) -> None:
    lab = made.lab
    word = "is up already" if made.already else "is up"
    print(
        f"lab {lab.name} {word}: {len(lab.hosts)} hosts × {lab.hosts[0].slots} slots, "
        f"{format_rate(lab.spec.bandwidth)}, ssh port {lab.spec.ssh_port}, {lab.spec.subnet}"
    )
    print(f"  hostfile    {lab.hostfile}\n  ssh config  {lab.ssh_config}")
    if lab.spec.tree:
        print(f"  root        {lab.spec.tree.path}")
    if lab.spec.kernel:
        print("  hosts       emulated machines with Soft-RoCE: what they write stays in their memory")
    if made.dead:
        print(f"ringleader: dead: {', '.join(made.dead)}\n    → ringleader lab heal HOST", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class DownOptions(LabOptions):
    """The options of ``lab down``."""

    all: bool = flag("All labs of this machine.")
    dry_run: bool = flag("Print, as a shell script, what would be done.")


def down(options: DownOptions) -> None:
    """Remove a lab, also what a crash left of it; nothing to remove is not an error."""
    for one in saved_state.names() if options.all else (options.name or DEFAULT_NAME,):
        check_name(one)
        if options.dry_run:
            found = kernel_state.remains(one, saved_state.ROOT)
            print(script((down_phase(one, found),)), end="")
            continue
        requirements.check_machine(os.environ)
        removed = lab_down.down(one)
        print(f"lab {one} is down" if removed else f"lab {one}: nothing to remove")


@dataclass(frozen=True, kw_only=True)
class StatusOptions(LabOptions):
    """The options of ``lab status``."""

    json: JsonOptions = group(JsonOptions)
    hostfile: bool = flag("Print the hostfile's path only.")
    ssh_config: bool = flag("Print the ssh configuration's path only.")


def status(options: StatusOptions) -> None:
    """Show every host of a lab: address, slots, rate, state, sshd."""
    if options.hostfile and options.ssh_config:
        where, hint = "--hostfile and --ssh-config", "leave one out"
        raise RequestError("only one path is printed", where=where, hint=hint)
    lab = saved_state.current(options.name)
    if options.hostfile or options.ssh_config:
        print(lab.ssh_config if options.ssh_config else lab.hostfile)
        return
    rows = host_status.status(lab)
    cells = [
        (row.host.name, row.host.address, row.host.slots, row.rate, row.state, "answers" if row.sshd else "-")
        for row in rows
    ]
    head = ("host", "address", "slots", "rate", "state", "sshd")
    show(options.json, _status_document(lab, rows), lambda: table(cells, head, align="llrl") + "\n")


def _status_document(lab: saved_state.Lab, rows: tuple[host_status.HostStatus, ...]) -> dict[str, object]:
    return {
        "name": lab.name,
        "subnet": lab.spec.subnet,
        "head_address": lab.spec.head_address,
        "ssh_port": lab.spec.ssh_port,
        "root": lab.spec.tree.path if lab.spec.tree else None,
        "hostfile": lab.hostfile,
        "ssh_config": lab.ssh_config,
        "bandwidth_bit_per_s": lab.spec.bandwidth,
        "latency_s": lab.spec.latency,
        "hosts": [
            {
                "name": row.host.name,
                "address": row.host.address,
                "slots": row.host.slots,
                "namespace": row.host.namespace,
                "rate": row.rate,
                "state": row.state,
                "sshd": row.sshd,
            }
            for row in rows
        ],
    }


def shell(options: HostOptions) -> None:
    """Open a shell on a host (works while its link is cut)."""
    lab = saved_state.current(options.name)
    _become(lab, options.host, (host_shell.shell_of(lab, os.environ), "-i"))


@dataclass(frozen=True, kw_only=True)
class ExecOptions(LabOptions):
    """The options of ``lab exec``."""

    all: bool = flag("On all hosts side by side, each line with its host.")
    words: tuple[str, ...] = argument("[HOST] -- COMMAND…", default=(), command=True)


def run_on_host(options: ExecOptions) -> int:
    """Run a command on a host (works while its link is cut); its exit code passes through."""
    lab, words = saved_state.current(options.name), options.words
    host, argv = ("", words) if options.all else (words[0] if words else "", words[1:])
    if argv[:1] == ("--",):
        argv = argv[1:]
    if not argv or not (host or options.all):
        example = "ringleader lab exec h1 -- hostname"
        raise RequestError("nothing to run", where="COMMAND", hint=f"for example {example}")
    if options.all:
        return _exec_all(lab, argv)
    _become(lab, host, argv)


def _exec_all(lab: saved_state.Lab, command: tuple[str, ...]) -> int:
    requirements.check_machine(os.environ)
    code = 0
    for host, done in host_shell.exec_all(lab, command, os.environ):
        for stream, content in ((sys.stdout, done.stdout), (sys.stderr, done.stderr)):
            for line in content.decode(errors="replace").splitlines():
                print(f"[{host.name}] {line}", file=stream)
        code = code or (done.returncode if done.returncode >= 0 else 128 - done.returncode)
    return code


def _become(lab: saved_state.Lab, host: str, command: tuple[str, ...]) -> NoReturn:
    """Turn this process into the command on the host, so that terminal, signals and exit code are its own."""
    requirements.check_machine(os.environ)
    argv = host_shell.argv_on(lab, fault_injection.find_host(lab, host), command)
    sys.stdout.flush()
    os.execvpe(argv[0], argv, host_shell.environment(lab, os.environ))


for _command in (
    Command("up", UpOptions, up),
    Command(
        "down",
        DownOptions,
        down,
    ),
    Command("status", StatusOptions, status),
    Command("shell", HostOptions, shell),
    Command(
        "exec",
        ExecOptions,
        run_on_host,
        context_settings={"ignore_unknown_options": True},
    ),
    Command(
        "slow",
        SlowOptions,
        slow,
    ),
):
    command.add_command(_command)
for _name, (_change, _help) in _FAULTS.items():
    command.add_command(Command(_name, HostOptions, _to_host(_change), help=_help))
