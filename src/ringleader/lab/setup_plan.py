"""The steps that make a lab, in order. Pure: nothing here touches anything."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.lab import boot_scripts, config_files, emulated_machine
from ringleader.lab.spec import LabSpec, directory_of, to_json
from ringleader.lab.steps import (
    AddHostsBlock,
    Command,
    MakeDirectory,
    Phase,
    Step,
    WriteFile,
)
from ringleader.lab.virtual_network import MTU, network_steps


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
    python: str = "/usr/bin/python3"
    """Our own interpreter."""
    sshd: str = "/usr/sbin/sshd"
    """sshd insists on being started by its absolute path."""
    use_pam: bool = False
    """True where root's account is locked: sshd without PAM would refuse even a key."""
    variables: tuple[tuple[str, str], ...] = ()
    """What commands that come over ssh have in their environment besides: a tree's own."""
    kept: tuple[str, ...] = ()
    """Directories of Ringleader and its interpreter: hosts need them, also below ``/tmp``."""
    qemu: str = ""
    """Of emulated hosts, as the next two: paths of programs, and of the kernel's file."""
    busybox: str = ""
    kernel: str = ""


def file_steps(spec: LabSpec, machine: Machine) -> list[Step]:
    """Return the steps that write every file of a lab, the keys included."""
    directory = directory_of(spec.name, machine.root)
    steps: list[Step] = [
        _ssh_keygen(f"{directory}/id", f"ringleader lab {spec.name}"),
        Command(argv=("cat", f"{directory}/id.pub"), append_to=f"{directory}/authorized_keys"),
        WriteFile(path=f"{directory}/hostfile", text=config_files.hostfile(spec)),
        WriteFile(path=f"{directory}/ssh_config", text=config_files.ssh_config(spec, directory)),
    ]
    if spec.kernel:
        steps += [
            WriteFile(path=f"{directory}/init", text=emulated_machine.init_script()),
            emulated_machine.initramfs_step(machine.kernel, machine.busybox, directory, machine.python),
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
        if spec.kernel:
            guest = emulated_machine.guest_script(number, directory, sshd=machine.sshd)
            steps.append(WriteFile(path=f"{own}/guest.sh", text=guest))
    return steps


def _scripts(spec: LabSpec, number: int, directory: str, machine: Machine) -> tuple[str, str]:
    """Return what boots a host, and what its process 1 does."""
    if spec.kernel:
        qemu, kernel = machine.qemu, machine.kernel
        first = emulated_machine.first_script(spec, number, directory, qemu=qemu, kernel=kernel, mtu=MTU)
        return emulated_machine.boot_script(number, directory), first
    if spec.tree:
        return (
            boot_scripts.rootfs_boot_script(spec, spec.tree, number, directory),
            boot_scripts.rootfs_first_script(number, directory, sshd=machine.sshd),
        )
    return (
        boot_scripts.boot_script(spec, number, directory, kept=machine.kept),
        boot_scripts.first_script(spec, number, directory, sshd=machine.sshd),
    )


def _ssh_keygen(path: str, comment: str) -> Command:
    return Command(argv=("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path))


def boot_step(spec: LabSpec, number: int, root: str) -> Command:
    """Return the step that starts host ``number``; it returns when the host's process 1 has been started."""
    script = f"{directory_of(spec.name, root)}/h{number}/boot.sh"
    network = f"--net=/run/netns/{spec.namespace(number)}"
    return Command(argv=("nsenter", network, "unshare", "--mount", "--uts", "--ipc", "sh", script))


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


def first_steps(spec: LabSpec, root: str) -> list[Step]:
    """Return the steps that come before all others: the directory, and in it the intent."""
    directory = directory_of(spec.name, root)
    return [
        MakeDirectory(path=directory, mode=0o700),
        WriteFile(path=f"{directory}/lab.json", text=to_json(spec), mode=0o600),
    ]
