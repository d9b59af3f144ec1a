"""``ringleader lab``: a cluster on one machine."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import NoReturn

import click

from ringleader.errors import Fault, LabError, RequestError
from ringleader.lab import down as lab_down
from ringleader.lab import fault_injection, host_shell, kernel_state, requirements, saved_state
from ringleader.lab import up as lab_up
from ringleader.lab.rootfs_inspection import tree_asked_for
from ringleader.lab.setup_plan import directory_of, down_phase, script, up_phases
from ringleader.lab.spec import DEFAULT_NAME, LabSpec, check_name, format_rate, free_subnet, spec_of

name_option = click.option(
    "--name",
    envvar=saved_state.VARIABLE,
    metavar="NAME",
    help="Which lab. [default: RINGLEADER_LAB, else `lab`, else the only one there is]",
)


@click.group(name="lab", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """A cluster on one machine: real network namespaces, rate-limited links, an sshd per host.

    Needs root. `ringleader run --lab` runs on it; `ssh -F "$(ringleader lab status --ssh-config)" h1` works.
    """


def _say(text: str) -> None:
    """Show progress to a person who looks on; a terminal's line is overwritten by the next one."""
    if sys.stderr.isatty():
        print(f"\r\033[Klab: {text}", end="", file=sys.stderr, flush=True)


def _end_progress() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


@command.command()
@click.option("--hosts", default=4, show_default=True, type=int, help="Number of hosts, h1 … hN.")
@click.option("--slots", default=2, show_default=True, type=int, help="Slots of each host in the hostfile.")
@click.option("--bandwidth", default="8gbit", show_default=True, help="Rate of each host's link, each way.")
@click.option("--latency", default="0", show_default=True, help="Delay of each frame, each way: 200us, 1ms.")
@click.option("--ssh-port", default=33, show_default=True, type=int, help="Port of each host's sshd.")
@click.option("--subnet", default=None, help="Private network; by default the first free 10.213.x.0/24.")
@click.option("--private-tmp", is_flag=True, help="Give each host an own, empty /tmp.")
@click.option("--root", metavar="DIR", help="Root file system of the hosts: the tree of an unpacked image.")
@click.option(
    "--bind",
    "binds",
    multiple=True,
    metavar="SRC:DST[:ro]",
    help="With --root: also this of the machine.",
)
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="Tells several labs apart.")
@click.option("--replace", is_flag=True, help="Take a lab of that name down first.")
@click.option("--dry-run", is_flag=True, help="Print, as a shell script, what would be done.")
def up(
    hosts: int,
    slots: int,
    bandwidth: str,
    latency: str,
    ssh_port: int,
    subnet: str | None,
    private_tmp: bool,
    root: str | None,
    binds: tuple[str, ...],
    name: str,
    replace: bool,
    dry_run: bool,
) -> None:
    """Make a lab; one that is up already is left alone."""
    present = _spec_of_present(name)
    known = present.subnet if present else None
    tree, faults = tree_asked_for(root, binds, lab_directory=directory_of(name, str(saved_state.ROOT)))
    spec = spec_of(
        name=name,
        hosts=hosts,
        slots=slots,
        bandwidth=bandwidth,
        latency=latency,
        ssh_port=ssh_port,
        subnet=subnet or known or _free_subnet(),
        private_tmp=private_tmp,
        tree=tree,
        further=[*requirements.port_faults(ssh_port), *faults],
    )
    if dry_run:
        _print_up(spec)
        return
    requirements.check_machine(os.environ)
    signal.signal(signal.SIGTERM, _stop)
    try:
        made = lab_up.up(
            spec, environ=os.environ, progress=_say, replace_it=replace, any_subnet=subnet is None
        )
    finally:
        _end_progress()
    _report_up(made)


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
        f"{format_rate(lab.bandwidth)}, ssh port {lab.ssh_port}, {lab.subnet}"
    )
    print(f"  hostfile    {lab.hostfile}\n  ssh config  {lab.ssh_config}")
    if lab.spec.tree:
        print(f"  root        {lab.spec.tree.path}")
    if made.dead:
        print(f"ringleader: dead: {', '.join(made.dead)}\n    → ringleader lab heal HOST", file=sys.stderr)


def _print_up(spec: LabSpec) -> None:
    machine = requirements.machine(spec, os.environ, saved_state.ROOT)
    print(script(up_phases(spec, machine)), end="")


@command.command()
@name_option
@click.option("--all", "every", is_flag=True, help="All labs of this machine.")
@click.option("--dry-run", is_flag=True, help="Print, as a shell script, what would be done.")
def down(name: str | None, every: bool, dry_run: bool) -> None:
    """Remove a lab, also what a crash left of it; nothing to remove is no error."""
    wanted = saved_state.names() if every else (name or DEFAULT_NAME,)
    for one in wanted:
        check_name(one)
        if dry_run:
            _print_down(one)
            continue
        requirements.check_machine(os.environ)
        removed = lab_down.down(one)
        print(f"lab {one} is down" if removed else f"lab {one}: nothing to remove")


def _print_down(name: str) -> None:
    found = kernel_state.remains(name, saved_state.ROOT)
    print(script((down_phase(name, found),)), end="")


@command.command()
@name_option
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@click.option("--hostfile", "only", flag_value="hostfile", help="Print the hostfile's path only.")
@click.option(
    "--ssh-config", "only", flag_value="ssh_config", help="Print the ssh configuration's path only."
)
def status(name: str | None, as_json: bool, only: str | None) -> None:
    """Show every host of a lab: address, slots, rate, state, sshd."""
    lab = saved_state.current(name)
    if only:
        print(getattr(lab, only))
        return
    rows = fault_injection.status(lab)
    if as_json:
        print(json.dumps(_status_document(lab, rows), indent=2))
        return
    from tabulate import tabulate

    header = ["host", "address", "slots", "rate", "state", "sshd"]
    table = [
        [row.host.name, row.host.address, row.host.slots, row.rate, row.state, "answers" if row.sshd else "-"]
        for row in rows
    ]
    print(tabulate(table, headers=header))


def _status_document(lab: saved_state.Lab, rows: tuple[fault_injection.HostStatus, ...]) -> dict[str, object]:
    return {
        "name": lab.name,
        "subnet": lab.subnet,
        "head_address": lab.head_address,
        "ssh_port": lab.ssh_port,
        "root": lab.spec.tree.path if lab.spec.tree else None,
        "hostfile": lab.hostfile,
        "ssh_config": lab.ssh_config,
        "bandwidth_bit_per_s": lab.bandwidth,
        "latency_s": lab.latency,
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


@command.command()
@name_option
@click.argument("host")
def shell(name: str | None, host: str) -> None:
    """Open a shell on a host (works while its link is cut)."""
    lab = saved_state.current(name)
    _become(lab, host, (host_shell.shell_of(lab, os.environ), "-i"))


@command.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@name_option
@click.option("--all", "every", is_flag=True, help="On all hosts side by side, each line with its host.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[HOST] -- COMMAND…")
def exec_(name: str | None, every: bool, words: tuple[str, ...]) -> None:
    """Run a command on a host (works while its link is cut); its exit code passes through."""
    lab = saved_state.current(name)
    host, command = ("", words) if every else (words[0] if words else "", words[1:])
    if command[:1] == ("--",):
        command = command[1:]
    if not command or not (host or every):
        example = "ringleader lab exec h1 -- hostname"
        raise RequestError(Fault(where="COMMAND", what="nothing to run", hint=f"for example {example}"))
    if every:
        sys.exit(_exec_all(lab, command))
    _become(lab, host, command)


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
    argv = host_shell.argv_on(fault_injection.find_host(lab, host), command)
    sys.stdout.flush()
    os.execvpe(argv[0], argv, host_shell.environment(lab, os.environ))


@command.command()
@name_option
@click.argument("host")
def cut(name: str | None, host: str) -> None:
    """Cut a host's link: its peers see silence, as with a pulled cable behind a switch."""
    requirements.check_machine(os.environ)
    lab = saved_state.current(name)
    fault_injection.cut(lab, fault_injection.find_host(lab, host))


@command.command()
@name_option
@click.argument("host")
def heal(name: str | None, host: str) -> None:
    """Mend a host's link, and start the host again where it was killed."""
    requirements.check_machine(os.environ)
    lab = saved_state.current(name)
    fault_injection.heal(lab, fault_injection.find_host(lab, host))


@command.command()
@name_option
@click.argument("host")
def kill(name: str | None, host: str) -> None:
    """Kill every process on a host, its sshd included."""
    requirements.check_machine(os.environ)
    lab = saved_state.current(name)
    fault_injection.kill(lab, fault_injection.find_host(lab, host))
