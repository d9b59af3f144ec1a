"""The steps that make a lab, and those that remove what exists of one; ``lifecycle`` does them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.lab import host_files
from ringleader.lab.host_files import Machine
from ringleader.lab.network import network_steps
from ringleader.lab.spec import LabSpec, directory_of, to_json
from ringleader.lab.steps import Command, HostsBlock, MakeDirectory, Phase, Step, WriteFile


def up_phases(spec: LabSpec, machine: Machine) -> tuple[Phase, ...]:
    """Return every step of ``lab up``, in order: the intent first, so that a crash leaves nothing unknown."""
    block = HostsBlock(name=spec.name, text=host_files.hosts_on_head(spec, machine.missing_names))
    boots = [boot_step(spec, number, machine.root) for number in range(1, spec.hosts + 1)]
    files = (*first_steps(spec, machine.root), *_file_steps(spec, machine))
    return (
        Phase(title="writing keys and files", steps=files),
        Phase(title="making namespaces and links", steps=(*network_steps(spec), block)),
        Phase(title="starting hosts", steps=tuple(boots)),
    )


def first_steps(spec: LabSpec, root: str) -> list[Step]:
    """Return the steps that come before all others: the directory, and in it the intent."""
    directory = directory_of(spec.name, root)
    return [
        MakeDirectory(path=directory, mode=0o700),
        WriteFile(path=f"{directory}/lab.json", text=to_json(spec), mode=0o600),
    ]


def _file_steps(spec: LabSpec, machine: Machine) -> list[Step]:
    """Return the steps that write every file of a lab, the keys included."""
    directory = directory_of(spec.name, machine.root)
    steps: list[Step] = [
        _ssh_keygen(f"{directory}/id", f"ringleader lab {spec.name}"),
        Command(argv=("cat", f"{directory}/id.pub"), append_to=f"{directory}/authorized_keys"),
        WriteFile(path=f"{directory}/hostfile", text=host_files.hostfile(spec)),
        WriteFile(path=f"{directory}/ssh_config", text=host_files.ssh_config(spec, directory)),
    ]
    if spec.kernel:
        words = (machine.kernel, machine.busybox, f"{directory}/init", f"{directory}/initramfs")
        # Its standard input would be the lab's lock, a directory, with which Python does not start.
        shell = ("sh", "-c", '"$@" </dev/null', "sh")
        pack = (*shell, machine.python, "-P", "-m", "ringleader.lab.initramfs", *words)
        steps += [WriteFile(path=f"{directory}/init", text=host_files.INIT), Command(argv=pack)]
    for number, name in enumerate(spec.host_names, 1):
        own = f"{directory}/h{number}"
        port, address = spec.ssh_port, spec.address(number)
        known_as = f"[{address}]:{port},[{name}]:{port},{name},{address}"
        known = ("sed", f"s/^/{known_as} /", f"{own}/host_key.pub")
        files = {
            "sshd_config": host_files.sshd_config(spec, number, directory, machine),
            "hosts": host_files.hosts_on_host(spec, machine.head_names),
            **host_files.scripts(spec, number, directory, machine),
        }
        steps += [
            *(MakeDirectory(path=path) for path in (own, f"{own}/run", f"{own}/sys")),
            _ssh_keygen(f"{own}/host_key", name),
            Command(argv=known, append_to=f"{directory}/known_hosts"),
            *(WriteFile(path=f"{own}/{name}", text=text) for name, text in files.items()),
        ]
    return steps


def _ssh_keygen(path: str, comment: str) -> Command:
    return Command(argv=("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path))


def boot_step(spec: LabSpec, number: int, root: str) -> Command:
    """Return the step that starts host ``number``; it returns when the host's process 1 has been started."""
    script = f"{directory_of(spec.name, root)}/h{number}/boot.sh"
    network = f"--net=/run/netns/{spec.namespace(number)}"
    return Command(argv=("nsenter", network, "unshare", "--mount", "--uts", "--ipc", "sh", script))


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

    def __str__(self) -> str:
        parts = [*map(str, self.processes), *self.namespaces, *self.links]
        parts += [self.directory] if self.directory else []
        return ", ".join([*parts, *(["the block in /etc/hosts"] if self.in_hosts_file else [])])


def down_phase(name: str, remains: Remains) -> Phase:
    """Return every step that removes a lab: processes first, what they lived in after them."""
    steps: list[Step] = [HostsBlock(name=name)] if remains.in_hosts_file else []
    steps += [kill_step(remains.processes)] if remains.processes else []
    steps += network_removal_steps(remains)
    steps += [Command(argv=("rm", "-rf", remains.directory))] if remains.directory else []
    steps += netns_steps() if remains.netns_mount else []
    return Phase(title=f"removing lab {name}", steps=tuple(steps))


def kill_step(processes: tuple[int, ...]) -> Command:
    """Return the step that ends these processes; one that is gone by itself is not a failure."""
    return Command(argv=("kill", "-KILL", *map(str, processes)), may_fail=True)


def network_removal_steps(remains: Remains) -> list[Step]:
    """Return the steps that remove links and namespaces, once no process is left in them."""
    argvs = [("ip", "link", "del", link) for link in remains.links]
    argvs += [("ip", "netns", "del", namespace) for namespace in remains.namespaces]
    return [Command(argv=argv) for argv in argvs]


def netns_steps(*, mounted: bool = True) -> list[Step]:
    """Return the steps that undo what the first ``ip netns add`` on a machine does."""
    unmount = [Command(argv=("umount", "-n", "/run/netns"))] if mounted else []
    return [*unmount, Command(argv=("rmdir", "/run/netns"))]
