"""Every file that a lab writes, as text. Pure."""

from __future__ import annotations

from ringleader.lab.spec import LabSpec

SHARED_TMP = "/tmp"
OWN_TMP = "/var/tmp"


def hostfile(spec: LabSpec) -> str:
    """Return Open MPI's hostfile."""
    return "".join(f"{name} slots={spec.slots}\n" for name in spec.host_names)


def ssh_config(spec: LabSpec, directory: str) -> str:
    """Return the ssh client's configuration: each name knows its address, port and keys; nothing is asked."""
    blocks = []
    for number, name in enumerate(spec.host_names, 1):
        address = spec.address(number)
        blocks.append(f"Host {name} {address}\n    HostName {address}\n")
    common = f"""\
Host *
    Port {spec.ssh_port}
    IdentityFile "{directory}/id"
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile "{directory}/known_hosts"
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    PasswordAuthentication no
    KbdInteractiveAuthentication no
    BatchMode yes
    CheckHostIP no
"""
    return "\n".join([*blocks, common])


def session_variables(spec: LabSpec, *, cores: int) -> dict[str, str]:
    """Return what a host's sessions have in their environment besides PATH.

    The hosts share this machine's ``cores``. Each of them believes that it has them all, so an MPI that spins
    while it waits would not see that it takes the cores from the ranks it waits for.
    """
    variables = {"RINGLEADER_LAB": spec.name}
    if not (spec.private_tmp or spec.tree):
        variables["TMPDIR"] = OWN_TMP
    if spec.hosts * spec.slots > cores:
        variables["OMPI_MCA_mpi_yield_when_idle"] = "1"
    return variables


def sshd_config(
    spec: LabSpec,
    number: int,
    directory: str,
    *,
    path: str,
    cores: int,
    use_pam: bool,
    variables: tuple[tuple[str, str], ...] = (),
) -> str:
    """Return the configuration of one host's sshd; ``path`` is the PATH that sessions get.

    SHLVL keeps bash from reading ``~/.bashrc`` for a command that comes over ssh: what is in there may take
    seconds, replaces PATH, or waits for a lock that a killed host left behind.
    """
    own = f"{directory}/h{number}"
    session = {**dict(variables), "PATH": path, "SHLVL": "1", **session_variables(spec, cores=cores)}
    words = " ".join(f'"{name}={value}"' for name, value in session.items())
    return f"""\
Port {spec.ssh_port}
ListenAddress {spec.address(number)}
HostKey "{own}/host_key"
AuthorizedKeysFile "{directory}/authorized_keys"
PidFile none
UsePAM {"yes" if use_pam else "no"}
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
PrintMotd no
PrintLastLog no
MaxStartups 200:30:400
MaxSessions 200
Subsystem sftp internal-sftp
SetEnv {words}
"""


def hosts_on_host(spec: LabSpec, head_names: tuple[str, ...]) -> str:
    """Return ``/etc/hosts`` as every host of the lab sees it; ``head_names`` are the machine's own names."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines += [f"{spec.address(number)} {name}" for number, name in enumerate(spec.host_names, 1)]
    lines.append(" ".join([spec.head_address, *head_names, f"{spec.name}-head"]))
    return "\n".join(lines) + "\n"


def hosts_on_head(spec: LabSpec, missing_names: tuple[str, ...]) -> str:
    """Return the lines for the machine's own ``/etc/hosts``, with those of its names that nothing knows."""
    lines = [f"{spec.address(number)} {name}" for number, name in enumerate(spec.host_names, 1)]
    lines.append(" ".join([spec.head_address, *missing_names, f"{spec.name}-head"]))
    return "\n".join(lines) + "\n"


def boot_script(spec: LabSpec, number: int, directory: str) -> str:
    """Return the script that turns fresh network, mount, UTS and IPC namespaces into a host.

    ``/run`` becomes private (sshd wants ``/run/sshd``) except for the lab's directory.
    """
    own = f"{directory}/h{number}"
    etc = f"{own}/run/etc"
    name = spec.host_names[number - 1]
    private_tmp = f"\nmount -n -t tmpfs -o mode=1777 tmpfs {SHARED_TMP}" if spec.private_tmp else ""
    return f"""\
set -e
echo {name} > /proc/sys/kernel/hostname
# Copies of other namespaces' mounts would keep those namespaces alive after their end.
if mountpoint -q /run/netns; then umount -n -l /run/netns; fi
mount -n -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -n -t tmpfs -o mode=1777 tmpfs {OWN_TMP}{private_tmp}
mount -n -t sysfs -o ro sysfs {own}/sys
if [ -d /sys/fs/cgroup ]; then mount -n --rbind /sys/fs/cgroup {own}/sys/fs/cgroup; fi
mount -n --move {own}/sys /sys
mount -n -t tmpfs -o mode=755 tmpfs {own}/run
mkdir -p {own}/run/sshd {own}/run/lock {own}/run{directory.removeprefix("/run")}
mount -n --bind {directory} {own}/run{directory.removeprefix("/run")}
# A mount on /etc/hosts itself would vanish as soon as anyone on the machine replaces that file by renaming.
mkdir -p {etc}/upper {etc}/work
cp {own}/hosts {etc}/upper/hosts
echo {name} > {etc}/upper/hostname
mount -n -t overlay -o lowerdir=/etc,upperdir={etc}/upper,workdir={etc}/work overlay /etc ||
    mount -n --bind {own}/hosts /etc/hosts
mount -n --move {own}/run /run
cd /
# The next child is process 1 of the host: when it dies, the kernel kills everything on the host.
exec unshare --pid sh -c "setsid sh {own}/first.sh >> {own}/boot.log 2>&1 &"
"""


def first_script(spec: LabSpec, number: int, directory: str, *, sshd: str) -> str:
    """Return the script that becomes a host's process 1: its own /proc, then sshd in its place.

    Hosts share ``/tmp``, and MPIs call their directories there after process numbers alone. So each host
    counts its processes from another number on.
    """
    own = f"{directory}/h{number}"
    return f"""\
set -e
mount -n -t proc proc /proc
last=/proc/sys/kernel/ns_last_pid
if [ -w $last ]; then
    echo $(($(cat /proc/sys/kernel/pid_max) / {len(spec.host_names) + 1} * {number})) > $last
fi
exec {sshd} -D -f {own}/sshd_config -E {own}/sshd.log
"""
