"""The list of steps that make a lab, and the one that removes it. Pure: nothing here touches anything."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ringleader.lab import config_files, rootfs_boot_scripts
from ringleader.lab.actions import (
    AddHostsBlock,
    Command,
    MakeDirectory,
    RemoveHostsBlock,
    Step,
    WriteFile,
    shell_line,
)
from ringleader.lab.rootfs import tree_from
from ringleader.lab.spec import LabSpec

MTU = 9000
"""Bytes per frame: what cluster fabrics use, and what keeps headers out of the measured rate."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the plan has to know of this machine."""

    root: str
    """Directory of all labs; the lab's own is below it."""
    head_names: tuple[str, ...]
    """The machine's own names, to be resolved by the hosts."""
    missing_names: tuple[str, ...]
    """Those of them that the machine itself can't resolve: Open MPI hangs at start without."""
    path: str
    """PATH for commands that come over ssh."""
    cores: int
    """What all hosts of the lab share."""
    sshd: str = "/usr/sbin/sshd"
    """sshd insists on being started by its absolute path."""
    use_pam: bool = False
    """True where root's account is locked: sshd without PAM would refuse even a key."""
    variables: tuple[tuple[str, str], ...] = ()
    """What commands that come over ssh have in their environment besides: a tree's own."""


def directory_of(name: str, root: str) -> str:
    """Return where a lab keeps its files."""
    return f"{root}/{name}"


def file_steps(spec: LabSpec, machine: Machine) -> list[Step]:
    """Return the steps that write every file of a lab, the keys included."""
    directory = directory_of(spec.name, machine.root)
    steps: list[Step] = [
        _ssh_keygen(f"{directory}/id", f"ringleader lab {spec.name}"),
        Command(argv=("cat", f"{directory}/id.pub"), append_to=f"{directory}/authorized_keys"),
        WriteFile(path=f"{directory}/hostfile", text=config_files.hostfile(spec)),
        WriteFile(path=f"{directory}/ssh_config", text=config_files.ssh_config(spec, directory)),
    ]
    for number, name in enumerate(spec.host_names, 1):
        own = f"{directory}/h{number}"
        config = config_files.sshd_config(
            spec,
            number,
            directory,
            path=machine.path,
            cores=machine.cores,
            use_pam=machine.use_pam,
            variables=machine.variables,
        )
        boot, first = _scripts(spec, number, directory, machine)
        port, address = spec.ssh_port, spec.address(number)
        known_as = f"[{address}]:{port},[{name}]:{port},{name},{address}"
        steps += [
            MakeDirectory(path=own),
            MakeDirectory(path=f"{own}/run"),
            MakeDirectory(path=f"{own}/sys"),
            _ssh_keygen(f"{own}/host_key", name),
            Command(
                argv=("sed", f"s/^/{known_as} /", f"{own}/host_key.pub"),
                append_to=f"{directory}/known_hosts",
            ),
            WriteFile(path=f"{own}/sshd_config", text=config),
            WriteFile(path=f"{own}/hosts", text=config_files.hosts_on_host(spec, machine.head_names)),
            WriteFile(path=f"{own}/boot.sh", text=boot),
            WriteFile(path=f"{own}/first.sh", text=first),
        ]
    return steps


def _scripts(spec: LabSpec, number: int, directory: str, machine: Machine) -> tuple[str, str]:
    """Return what boots a host, and what its process 1 does."""
    if spec.tree:
        return (
            rootfs_boot_scripts.tree_boot_script(spec, spec.tree, number, directory),
            rootfs_boot_scripts.tree_first_script(number, directory, sshd=machine.sshd),
        )
    return (
        config_files.boot_script(spec, number, directory),
        config_files.first_script(spec, number, directory, sshd=machine.sshd),
    )


def _ssh_keygen(path: str, comment: str) -> Command:
    return Command(argv=("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path))


def network_steps(spec: LabSpec) -> list[Step]:
    """Return the steps that make the switch, and each host's namespace and cable."""
    bridge = spec.bridge
    head = f"{spec.head_address}/{spec.prefix_length}"
    argvs: list[tuple[str, ...]] = [
        ("ip", "link", "add", bridge, "mtu", str(MTU), "type", "bridge"),
        ("ip", "addr", "add", head, "dev", bridge),
        ("ip", "link", "set", bridge, "addrgenmode", "none", "up"),
    ]
    for number in range(1, spec.hosts + 1):
        link, namespace = spec.link(number), spec.namespace(number)
        address = f"{spec.address(number)}/{spec.prefix_length}"
        argvs += [
            ("ip", "netns", "add", namespace),
            (
                *("ip", "link", "add", link, "mtu", str(MTU), "type", "veth"),
                *("peer", "name", "eth0", "mtu", str(MTU), "netns", namespace),
            ),
            ("ip", "link", "set", link, "master", bridge, "addrgenmode", "none", "up"),
            ("ip", "-n", namespace, "link", "set", "lo", "up"),
            ("ip", "-n", namespace, "addr", "add", address, "dev", "eth0"),
            ("ip", "-n", namespace, "link", "set", "eth0", "addrgenmode", "none", "up"),
        ]
    shapers = [step for number in range(1, spec.hosts + 1) for step in shaping_steps(spec, number)]
    return [*(Command(argv=argv) for argv in argvs), *shapers]


def shaping(spec: LabSpec, tc: tuple[str, ...], device: str) -> list[tuple[str, ...]]:
    """Return the commands that limit what ``device`` sends.

    The bucket holds 2 ms of the rate: less, and a late timer on a busy machine costs rate; more, and short
    messages pass at the machine's own speed. The queue holds 16 ms more.
    """
    burst = max(spec.bandwidth // 8 // 500, 64 * 1024)
    limit = max(burst * 8, 1024 * 1024)
    argvs = [
        (
            *(*tc, "qdisc", "replace", "dev", device, "root", "handle", "1:"),
            *("tbf", "rate", f"{spec.bandwidth}bit", "burst", str(burst), "limit", str(limit)),
        )
    ]
    if spec.latency:
        delay = f"{round(spec.latency * 1e6)}us"
        frames = str(max(1000, round(spec.bandwidth * spec.latency / 8 / 1000)))
        argvs.append(
            (
                *(*tc, "qdisc", "replace", "dev", device, "parent", "1:1", "handle", "10:"),
                *("netem", "delay", delay, "limit", frames),
            )
        )
    return argvs


def shaping_steps(spec: LabSpec, number: int) -> list[Step]:
    """Return the steps that limit both ends of a host's cable; on a cut one they mend it."""
    ends = ((("tc",), spec.link(number)), (("tc", "-n", spec.namespace(number)), "eth0"))
    return [Command(argv=argv) for tc, device in ends for argv in shaping(spec, tc, device)]


def cut_steps(spec: LabSpec, number: int) -> list[Step]:
    """Return the steps after which both ends of a host's cable swallow what they should send.

    The links stay up and no address goes, so that neither end is told: peers see silence, never a reset.
    """
    ends = ((("tc",), spec.link(number)), (("tc", "-n", spec.namespace(number)), "eth0"))
    return [
        Command(argv=(*tc, "qdisc", "replace", "dev", device, "root", "handle", "2:", "blackhole"))
        for tc, device in ends
    ]


def boot_step(spec: LabSpec, number: int, root: str) -> Command:
    """Return the step that starts host ``number``; it returns when the host's process 1 has been started."""
    script = f"{directory_of(spec.name, root)}/h{number}/boot.sh"
    network = f"--net=/run/netns/{spec.namespace(number)}"
    return Command(argv=("nsenter", network, "unshare", "--mount", "--uts", "--ipc", "sh", script))


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Steps that are shown to a person as one."""

    title: str
    steps: tuple[Step, ...]


def up_phases(spec: LabSpec, machine: Machine) -> tuple[Phase, ...]:
    """Return every step of ``lab up``, in order: the intent first, so that a crash leaves nothing unknown."""
    block = AddHostsBlock(name=spec.name, text=config_files.hosts_on_head(spec, machine.missing_names))
    boots = [boot_step(spec, number, machine.root) for number in range(1, spec.hosts + 1)]
    return (
        Phase(
            title="writing keys and files",
            steps=(*first_steps(spec, machine.root), *file_steps(spec, machine)),
        ),
        Phase(title="making namespaces and links", steps=(*network_steps(spec), block)),
        Phase(title="starting hosts", steps=tuple(boots)),
    )


def script(phases: tuple[Phase, ...]) -> str:
    """Return a shell script that does what these phases do."""
    parts = ["#!/bin/sh\nset -e\n"]
    for phase in phases:
        parts.append(f"\n# {phase.title}\n")
        parts += [f"{shell_line(step)}\n" for step in phase.steps]
    return "".join(parts)


def first_steps(spec: LabSpec, root: str) -> list[Step]:
    """Return the steps that come before all others: the directory, and in it the intent."""
    directory = directory_of(spec.name, root)
    return [
        MakeDirectory(path=directory, mode=0o700),
        WriteFile(path=f"{directory}/lab.json", text=to_json(spec), mode=0o600),
    ]


def to_json(spec: LabSpec) -> str:
    """Return the lab's state file."""
    return json.dumps({"format": 1, "spec": asdict(spec)}, indent=2) + "\n"


def from_json(text: str) -> LabSpec:
    """Read a state file back; ValueError where it is none of ours."""
    try:
        content = json.loads(text)
        if content["format"] != 1:
            raise ValueError(f"format {content['format']}")
        return LabSpec(**content["spec"] | {"tree": tree_from(content["spec"].get("tree"))})
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True, kw_only=True)
class Remains:
    """What of a lab exists on this machine."""

    processes: tuple[int, ...] = ()
    """Everything that runs in one of the lab's network namespaces."""
    namespaces: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Cables first, the switch last."""
    directory: str = ""
    """Empty where it does not exist."""
    in_hosts_file: bool = False
    netns_mount: bool = False
    """True where this is the last lab and labs made ``/run/netns`` a mount: it goes with this lab."""

    def __bool__(self) -> bool:
        return bool(self.processes or self.namespaces or self.links or self.directory or self.in_hosts_file)


def kill_step(processes: tuple[int, ...]) -> Command:
    """Return the step that ends these processes; one that is gone by itself is no failure."""
    return Command(argv=("kill", "-KILL", *map(str, processes)), may_fail=True)


def down_phase(name: str, remains: Remains) -> Phase:
    """Return what ``lab down`` does about these remains."""
    return Phase(title=f"removing lab {name}", steps=tuple(removal_steps(name, remains)))


def removal_steps(name: str, remains: Remains) -> list[Step]:
    """Return every step that removes a lab: processes first, what they lived in after them."""
    steps: list[Step] = [RemoveHostsBlock(name=name)] if remains.in_hosts_file else []
    steps += [kill_step(remains.processes)] if remains.processes else []
    steps += network_removal_steps(remains)
    steps += [Command(argv=("rm", "-rf", remains.directory))] if remains.directory else []
    return [*steps, *(netns_steps() if remains.netns_mount else [])]


def network_removal_steps(remains: Remains) -> list[Step]:
    """Return the steps that remove links and namespaces, once no process is left in them."""
    argvs = [("ip", "link", "del", link) for link in remains.links]
    argvs += [("ip", "netns", "del", namespace) for namespace in remains.namespaces]
    return [Command(argv=argv) for argv in argvs]


def netns_steps(*, mounted: bool = True) -> list[Step]:
    """Return the steps that undo what the first ``ip netns add`` on a machine does."""
    unmount = [Command(argv=("umount", "-n", "/run/netns"))] if mounted else []
    return [*unmount, Command(argv=("rmdir", "/run/netns"))]
