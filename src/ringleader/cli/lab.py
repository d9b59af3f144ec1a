"""``ringleader lab``: a cluster on one machine, and faults of its hosts on request."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn

import click

from ringleader.cli.command_groups import Group
from ringleader.cli.output import JsonOptions, show, table
from ringleader.cli.terminal_progress import ProgressLine, shown_while
from ringleader.cli.typed_command import REPLACE, Command
from ringleader.errors import Fault, LabError, RefusedError, RequestError, RingleaderError, refuse
from ringleader.lab import hosts, kernel_state, lifecycle, requirements, saved_state
from ringleader.lab.network import SlowLink, slow_steps
from ringleader.lab.plan import down_phase, up_phases
from ringleader.lab.rootfs import rootfs_of_options
from ringleader.lab.saved_state import Lab, LabHost
from ringleader.lab.spec import (
    DEFAULT_NAME,
    LabSpec,
    check,
    check_name,
    directory_of,
    format_rate,
    free_subnet,
)
from ringleader.lab.steps import Phase, script
from ringleader.option_fields import argument, flag, group, many, option, spellings_set

_DRY_RUN = "Print what would be done as a shell script, and stop."


@dataclass(frozen=True, kw_only=True)
class LabOptions:
    """A lab that there is."""

    name: str | None = option(
        "Name of the lab. [default: RINGLEADER_LAB, else `lab`, else the only one that exists]",
        "--lab-name",
        old=("--name",),
        envvar=saved_state.VARIABLE,
        metavar="NAME",
    )


@dataclass(frozen=True, kw_only=True)
class HostOptions(LabOptions):
    """A host of a lab."""

    host: str = argument("HOST")


@dataclass(frozen=True, kw_only=True)
class SlowOptions(HostOptions):
    """The options of ``lab slow``."""

    limit: SlowLink = group(SlowLink)
    off: bool = flag("Restore the rates of `lab up` in both directions.")
    dry_run: bool = flag(_DRY_RUN)
    faults: tuple[Fault, ...] = ()


def slow(options: SlowOptions) -> None:
    """Slow down a host's link.

    Affects one or both directions, like a bad cable or a slow port.
    """
    faults, limit = list(options.faults), options.limit
    if options.off and (faults or limit != SlowLink()):
        what, hint = "lifts all limits: it takes none", "leave the rates out"
        faults.insert(0, Fault(where="--off", what=what, hint=hint))
    if not (options.off or faults or limit != SlowLink()):
        hint = "for example --into 100mbit, --out-of 1gbit, --delay 5ms or --off"
        faults.append(Fault(where="ringleader lab slow", what="no limit is given", hint=hint))
    try:
        lab = saved_state.current(options.name)
        host = hosts.find_host(lab, options.host)
    except RingleaderError as error:
        if not faults:
            raise
        faults += error.faults
    refuse(faults)
    wanted = None if options.off else limit
    if options.dry_run:
        steps = slow_steps(lab.spec, lab.number(host), wanted)
        print(script([Phase(title=f"the link of {host.name}", steps=tuple(steps))]), end="")
        return
    requirements.check_machine(os.environ)
    hosts.slow(lab, host, wanted)


_FAULTS: dict[str, tuple[Callable[[Lab, LabHost], None], str]] = {
    "cut": (
        hosts.cut,
        "Cut a host's link silently, like a cable pulled behind a switch.",
    ),
    "heal": (hosts.heal, "Repair a host's link; restart the host if it was killed."),
    "kill": (hosts.kill, "Kill every process on a host, including sshd."),
}


def _to_host(change: Callable[[Lab, LabHost], None]) -> Callable[[HostOptions], None]:
    """Return what a command does that changes one host."""

    def run(options: HostOptions) -> None:
        requirements.check_machine(os.environ)
        lab = saved_state.current(options.name)
        change(lab, hosts.find_host(lab, options.host))

    return run


@click.group(name="lab", cls=Group)
def command() -> None:
    """Emulate a cluster on one machine: network namespaces, rate-limited links, an sshd per host.

    Needs root. Use it with `ringleader run --lab`, or `ssh -F "$(ringleader lab status --ssh-config)" h1`.
    """


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """The options of ``lab up``, as they were written."""

    spec: LabSpec = group(LabSpec)
    subnet: str | None = option(
        "Private network. [default: the first free 10.213.x.0/24]", metavar="CIDR", after="ssh_port"
    )
    root: str | None = option("Root file system of the hosts: an unpacked image.", metavar="DIR")
    mount: tuple[str, ...] = many(
        "With --root: mount a path of the machine on every host. Can be repeated.",
        old=("--bind",),
        metavar="SRC:DST[:ro]",
    )
    rdma: bool = flag("Run each host as a QEMU virtual machine with Soft-RoCE, so that RDMA verbs work.")
    kernel: str | None = option(
        "With --rdma: root directory that contains boot/vmlinuz-* and lib/modules, for example an unpacked "
        "kernel package. [default: /, the kernel of this machine]",
        metavar="DIR",
    )
    name: str = option(
        "Name of the lab.",
        "--lab-name",
        old=("--name",),
        default=DEFAULT_NAME,
        envvar=saved_state.VARIABLE,
        metavar="NAME",
    )
    replace: bool = flag("First remove a lab of that name.", **REPLACE)
    dry_run: bool = flag(_DRY_RUN)
    faults: tuple[Fault, ...] = ()


def up(options: UpOptions) -> None:
    """Start a lab: an emulated cluster on this machine. Requires root.

    If the lab is already running, do nothing.
    """
    spec = _spec(options)
    if options.dry_run:
        machine = requirements.machine(spec, os.environ, saved_state.ROOT)
        print(script(up_phases(spec, machine)), end="")
        return
    requirements.check_machine(os.environ)
    if spec.kernel:
        refuse(requirements.machine_faults(spec, os.environ), RefusedError)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    line = ProgressLine(prefix="lab: ")
    try:
        made = lifecycle.up(
            spec,
            environ=os.environ,
            progress=line.show,
            replace_it=options.replace,
            any_subnet=options.subnet is None,
        )
    finally:
        line.clear()
    _report_up(made)


def _spec(options: UpOptions) -> LabSpec:
    """Return what was asked for; RequestError with everything that is wrong with it."""
    present = _spec_of_present(options.name)
    place = directory_of(options.name, str(saved_state.ROOT))
    tree, faults = rootfs_of_options(options.root, options.mount, lab_directory=place)
    port = options.spec.ssh_port
    if not any(fault.where == "--ssh-port" for fault in options.faults):
        faults = [*requirements.port_faults(port), *faults]
    spec = replace(
        options.spec,
        name=options.name,
        # With wrong words it is not looked for: they are reported at once.
        subnet=options.subnet
        or (present.subnet if present else "10.213.0.0/24" if options.faults else _free_subnet()),
        tree=tree,
        kernel=os.path.realpath(options.kernel or "/") if options.rdma else "",
    )
    return check(spec, *options.faults, *faults, *_rdma_faults(options))


def _rdma_faults(options: UpOptions) -> list[Fault]:
    if not options.rdma:
        hint = "add --rdma, or leave it out"
        return [Fault(where="--kernel", what="is for emulated machines", hint=hint)] if options.kernel else []
    what, hint = "emulated machines run on this machine's files, each with its own /tmp", "leave one out"
    both = [*spellings_set(options, "root"), *spellings_set(options.spec, "private_tmp")]
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


def _report_up(made: lifecycle.Made) -> None:
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

    all: bool = flag("Remove all labs of this machine.")
    dry_run: bool = flag(_DRY_RUN)


def down(options: DownOptions) -> None:
    """Remove a lab, or what a crash left of it.

    Succeeds if nothing is left.
    """
    for one in saved_state.names() if options.all else (options.name or DEFAULT_NAME,):
        check_name(one)
        if options.dry_run:
            found = kernel_state.remains(one, saved_state.ROOT)
            print(script([down_phase(one, found)]), end="")
            continue
        requirements.check_machine(os.environ)
        with shown_while(f"removing lab {one}"):
            removed = lifecycle.down(one)
        print(f"lab {one} is down" if removed else f"lab {one}: nothing to remove")


@dataclass(frozen=True, kw_only=True)
class StatusOptions(LabOptions):
    """The options of ``lab status``."""

    json: JsonOptions = group(JsonOptions)
    hostfile: bool = flag("Print only the path of the hostfile.")
    ssh_config: bool = flag("Print only the path of the ssh configuration.")


def status(options: StatusOptions) -> None:
    """Show the hosts of a lab: address, slots, rate, state, sshd."""
    if options.hostfile and options.ssh_config:
        where, hint = "--hostfile and --ssh-config", "leave one out"
        raise RequestError("only one path is printed", where=where, hint=hint)
    lab = saved_state.current(options.name)
    if options.hostfile or options.ssh_config:
        print(lab.ssh_config if options.ssh_config else lab.hostfile)
        return
    rows = hosts.status(lab)
    cells = [
        (row.host.name, row.host.address, row.host.slots, row.rate, row.state, "answers" if row.sshd else "-")
        for row in rows
    ]
    head = ("host", "address", "slots", "rate", "state", "sshd")
    show(options.json, _status_document(lab, rows), lambda: table(cells, head, align="llrl") + "\n")


def _status_document(lab: Lab, rows: tuple[hosts.HostStatus, ...]) -> dict[str, object]:
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
        "hosts": [{**vars(row.host), "rate": row.rate, "state": row.state, "sshd": row.sshd} for row in rows],
    }


def shell(options: HostOptions) -> None:
    """Open a shell on a host; this works even while its link is cut."""
    lab = saved_state.current(options.name)
    _become(lab, options.host, (hosts.shell_of(lab, os.environ), "-i"))


@dataclass(frozen=True, kw_only=True)
class ExecOptions(LabOptions):
    """The options of ``lab exec``."""

    all: bool = flag("Run it on all hosts in parallel; each line of output names its host.")
    words: tuple[str, ...] = argument("HOST|--all [--] COMMAND…", default=(), command=True)


def run_on_host(options: ExecOptions) -> int:
    """Run a command on a host, even while its link is cut.

    `--` before COMMAND is optional. Returns COMMAND's exit code; with --all, the first that is not 0.
    """
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


def _exec_all(lab: Lab, command: tuple[str, ...]) -> int:
    requirements.check_machine(os.environ)
    code = 0
    for host, done in hosts.exec_all(lab, command, os.environ):
        for stream, content in ((sys.stdout, done.stdout), (sys.stderr, done.stderr)):
            for line in content.decode(errors="replace").splitlines():
                print(f"[{host.name}] {line}", file=stream)
        code = code or (done.returncode if done.returncode >= 0 else 128 - done.returncode)
    return code


def _become(lab: Lab, host: str, command: tuple[str, ...]) -> NoReturn:
    """Turn this process into the command on the host, so that terminal, signals and exit code are its own."""
    requirements.check_machine(os.environ)
    argv = hosts.argv_on(lab, hosts.find_host(lab, host), command)
    sys.stdout.flush()
    os.execvpe(argv[0], argv, hosts.environment(lab, os.environ))


_COMMANDS: tuple[click.Command, ...] = (
    Command("up", UpOptions, up),
    Command("down", DownOptions, down),
    Command("status", StatusOptions, status),
    Command("shell", HostOptions, shell),
    Command("exec", ExecOptions, run_on_host, context_settings={"ignore_unknown_options": True}),
    Command("slow", SlowOptions, slow),
    *(Command(name, HostOptions, _to_host(change), help=text) for name, (change, text) in _FAULTS.items()),
)
for _command in _COMMANDS:
    command.add_command(_command)
