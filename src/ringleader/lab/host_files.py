"""Every file of a lab: hostfile, configuration of ssh and sshd, and the scripts that start its hosts. Pure.

There are three kinds of hosts: on the machine's own files, on their own root file system (``rootfs``),
and emulated machines with Soft-RoCE. ``scripts`` returns those of a lab's kind. Only programs of the machine
run in them: all that another root file system must have is an sshd. Of an emulated machine QEMU is process 1
of the host's namespaces, so what ends, cuts or slows a host does the same to its machine, whose NIC is joined
to the host's link. It runs on this machine's files, read only over 9p, under an overlay.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from shlex import quote

from ringleader.lab.network import MTU
from ringleader.lab.rootfs import Bind, Rootfs
from ringleader.lab.spec import LabSpec

SHARED_TMP = "/tmp"
OWN_TMP = "/var/tmp"
DEVICES = "null zero full random urandom tty"
MEMORY = 1536
"""MiB of an emulated machine, of which PyTorch's import takes a third; ``doctor`` wants 1 GiB to be free."""


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


def hostfile(spec: LabSpec) -> str:
    """Return Open MPI's hostfile."""
    return "".join(f"{name} slots={spec.slots}\n" for name in spec.host_names)


def ssh_config(spec: LabSpec, directory: str) -> str:
    """Return the ssh client's configuration: each name knows its address, port and keys; nothing is asked."""
    pairs = [(name, spec.address(number)) for number, name in enumerate(spec.host_names, 1)]
    blocks = [f"Host {name} {address}\n    HostName {address}\n" for name, address in pairs]
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
    if not (spec.private_tmp or spec.tree or spec.kernel):
        variables["TMPDIR"] = OWN_TMP
    if spec.kernel or spec.hosts * spec.slots > cores:
        variables["OMPI_MCA_mpi_yield_when_idle"] = "1"
    return variables


def sshd_config(spec: LabSpec, number: int, directory: str, machine: Machine) -> str:
    """Return the configuration of one host's sshd.

    SHLVL keeps bash from reading ``~/.bashrc`` for a command that comes over ssh: what is in there may take
    seconds, replaces PATH, or waits for a lock that a killed host left behind.
    """
    own = f"{directory}/h{number}"
    session = {**dict(machine.variables), "PATH": machine.path, "SHLVL": "1"}
    session |= session_variables(spec, cores=machine.cores)
    words = " ".join(f'"{name}={value}"' for name, value in session.items())
    return f"""\
Port {spec.ssh_port}
ListenAddress {spec.address(number)}
HostKey "{own}/host_key"
AuthorizedKeysFile "{directory}/authorized_keys"
PidFile none
UsePAM {"yes" if machine.use_pam else "no"}
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
    loopback = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
    return loopback + hosts_on_head(spec, head_names)


def hosts_on_head(spec: LabSpec, missing_names: tuple[str, ...]) -> str:
    """Return the lines for the machine's own ``/etc/hosts``, with those of its names that nothing knows."""
    lines = [f"{spec.address(number)} {name}" for number, name in enumerate(spec.host_names, 1)]
    lines.append(" ".join([spec.head_address, *missing_names, f"{spec.name}-head"]))
    return "\n".join(lines) + "\n"


def scripts(spec: LabSpec, number: int, directory: str, machine: Machine) -> dict[str, str]:
    """Return the scripts of a host by name.

    ``boot.sh`` turns fresh network, mount, UTS and IPC namespaces into the host and returns. ``first.sh``
    becomes its process 1, ``guest.sh`` is what an emulated machine runs on its files.
    """
    own = f"{directory}/h{number}"
    if spec.kernel:
        return {
            "boot.sh": f"set -e\n{LEAVE_NAMESPACES}\ncd /\n{_start_first(own, log='>')}\n",
            "first.sh": _machine_first(spec, number, directory, machine),
            "guest.sh": f"""\
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
ulimit -l unlimited
ulimit -n 1048576
rdma link add rxe0 type rxe netdev eth0
exec {machine.sshd} -D -e -f {own}/sshd_config
""",
        }
    if spec.tree:
        return {
            "boot.sh": rootfs_boot_script(spec, spec.tree, number, directory),
            "first.sh": _rootfs_first(own, machine.sshd),
        }
    return {
        "boot.sh": _boot_script(spec, number, directory, machine.kept),
        "first.sh": _first_script(spec, number, own, machine.sshd),
    }


LEAVE_NAMESPACES = """\
# Copies of other namespaces' mounts would keep those namespaces alive after their end.
if mountpoint -q /run/netns; then umount -n -l /run/netns; fi"""


def _start_first(own: str, *, log: str = ">>") -> str:
    """Return the last lines of every boot script; ``log``: how the output goes to the host's boot.log."""
    return f"""\
# The next child is process 1 of the host: when it dies, the kernel kills everything on the host.
exec unshare --pid sh -c "setsid sh {own}/first.sh {log} {own}/boot.log 2>&1 &\""""


def _boot_script(spec: LabSpec, number: int, directory: str, kept: Iterable[str]) -> str:
    """``/run`` becomes private (sshd wants ``/run/sshd``) except for the lab's directory.

    ``kept``: directories that stay where the host gets its own ``/tmp`` or ``/var/tmp``.
    """
    own = f"{directory}/h{number}"
    etc = f"{own}/run/etc"
    name = spec.host_names[number - 1]
    places = (OWN_TMP, SHARED_TMP) if spec.private_tmp else (OWN_TMP,)
    own_places = "\n".join(_own_place(place, kept) for place in places)
    return f"""\
set -e
echo {name} > /proc/sys/kernel/hostname
{LEAVE_NAMESPACES}
mount -n -t tmpfs -o mode=1777 tmpfs /dev/shm
{own_places}
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
{_start_first(own)}
"""


def _own_place(place: str, kept: Iterable[str]) -> str:
    """Return what covers a directory; open descriptors lead to what stays there."""
    inside = tuple(enumerate((path for path in kept if path.startswith(f"{place}/")), 3))
    lines = [f"exec {number}<{quote(path)}" for number, path in inside]
    lines.append(f"mount -n -t tmpfs -o mode=1777 tmpfs {place}")
    for number, path in inside:
        lines += [f"mkdir -p {quote(path)}", f"mount -n -c --bind /proc/self/fd/{number} {quote(path)}"]
        lines.append(f"exec {number}<&-")
    return "\n".join(lines)


def _first_script(spec: LabSpec, number: int, own: str, sshd: str) -> str:
    """Return its own /proc, then sshd in its place.

    Hosts share ``/tmp``, and MPIs call their directories there after process numbers alone. So each host
    counts its processes from another number on.
    """
    return f"""\
set -e
mount -n -t proc proc /proc
last=/proc/sys/kernel/ns_last_pid
if [ -w $last ]; then
    echo $(($(cat /proc/sys/kernel/pid_max) / {len(spec.host_names) + 1} * {number})) > $last
fi
exec {sshd} -D -f {own}/sshd_config -E {own}/sshd.log
"""


def rootfs_boot_script(spec: LabSpec, tree: Rootfs, number: int, directory: str) -> str:
    """Return the script that turns fresh namespaces into a host of that tree.

    What the host writes is in memory and ends with it. Where the kernel can't lay an overlay on the tree
    (one that is an overlay of overlays already), the tree is there read-only, with its own ``/etc``.
    """
    own = f"{directory}/h{number}"
    name = spec.host_names[number - 1]
    binds = "".join(_bind_lines(bind) for bind in tree.binds)
    return f"""\
set -e
echo {name} > /proc/sys/kernel/hostname
{LEAVE_NAMESPACES}
mkdir -p {own}/fs
mount -n -t tmpfs -o mode=755 tmpfs {own}/fs
cd {own}/fs
mkdir lower upper work root
chmod 755 upper
mount -n --bind {quote(tree.path)} lower
if ! mount -n -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay root; then
    mount -n --bind lower root
    mount -n -o remount,bind,ro root
    cp -a lower/etc etc
    mount -n --bind etc root/etc
fi
cd root
mkdir -p dev etc proc run sys tmp var/tmp
mount -n -t tmpfs -o mode=755 tmpfs dev
for node in {DEVICES}; do : > dev/$node; mount -n --bind /dev/$node dev/$node; done
mkdir dev/pts dev/shm
mount -n -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for stream in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/${{stream%:*}} dev/${{stream#*:}}; done
for place in dev/shm tmp var/tmp; do mount -n -t tmpfs -o mode=1777 tmpfs $place; done
mount -n -t tmpfs -o mode=755 tmpfs run
mount -n -t sysfs -o ro sysfs sys
if [ -d /sys/fs/cgroup ]; then mount -n --rbind /sys/fs/cgroup sys/fs/cgroup; fi
rm -f etc/hosts etc/hostname
cp {own}/hosts etc/hosts
echo {name} > etc/hostname
# ssh takes the first value that it finds: how to reach the lab's hosts comes before the tree's own settings.
mkdir -p etc/ssh
printf 'User root\n' | cat - {directory}/ssh_config > ../ssh_config
if [ -f etc/ssh/ssh_config ] && [ ! -L etc/ssh/ssh_config ]; then cat etc/ssh/ssh_config >> ../ssh_config; fi
rm -f etc/ssh/ssh_config
cp ../ssh_config etc/ssh/ssh_config
{binds}mkdir -p run/sshd run/lock .{directory}
mount -n --bind {directory} .{directory}
{_start_first(own)}
"""


def _bind_lines(bind: Bind) -> str:
    source, target = quote(bind.source), quote(f".{bind.target}")
    parent = quote("." + posixpath.dirname(bind.target))
    lines = (
        f"if [ -d {source} ]; then mkdir -p {target}; else mkdir -p {parent}; : >> {target}; fi\n"
        f"mount -n --bind {source} {target}\n"
    )
    return lines + (f"mount -n -o remount,bind,ro {target}\n" if bind.read_only else "")


def _rootfs_first(own: str, sshd: str) -> str:
    """Return its own /proc, the tree as root, sshd in its place.

    The new root is moved over the old one: pivot_root would need the tree's own umount for the old one. The
    machine's tree has no path any more, though root on a host could dig it out: a lab is not a sandbox.
    """
    command = f"{quote(sshd)} -D -f {own}/sshd_config -E {own}/sshd.log"
    return f"""\
set -e
mount -n -t proc proc proc
mount -n --move . /
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . {command}
"""


def _machine_first(spec: LabSpec, number: int, directory: str, machine: Machine) -> str:
    words = {
        "lab_dir": directory,
        "lab_host": f"h{number}",
        "lab_name": spec.host_names[number - 1],
        "lab_address": f"{spec.address(number)}/{spec.prefix_length}",
        "lab_mtu": str(MTU),
    }
    given = " ".join(f"{name}={value}" for name, value in words.items())
    # With no_timer_check a boot beside other load does not stand still at the test of the timer.
    line = f"console=ttyS0 quiet panic=-1 no_timer_check {given}"
    mac = f"52:54:00:{number // 256:02x}:{number % 256:02x}:01"
    return f"""\
exec {quote(machine.qemu)} -accel tcg,thread=single -cpu max -smp 1 -m {MEMORY} \\
    -nodefaults -display none -no-reboot -serial stdio \\
    -kernel {quote(machine.kernel)} -initrd {directory}/initramfs -append {quote(line)} \\
    -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \\
    -device virtio-9p-pci,fsdev=root,mount_tag=root \\
    -netdev tap,id=net,ifname=tap0,script=no,downscript=no \\
    -device virtio-net-pci,netdev=net,mac={mac},host_mtu={MTU},romfile= </dev/null
"""


INIT = """\
#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
for module in $($B cat /order); do $B insmod "/modules/$module" || echo "insmod $module failed"; done
for word in $($B cat /proc/cmdline); do case $word in lab_*=*) export "$word";; esac; done
nine=trans=virtio,version=9p2000.L,msize=512000,ro,cache=loose
$B mount -t 9p -o $nine root /lower || echo "no files by 9p"
$B mount -t tmpfs -o mode=755,size=80% upper /upper
$B mkdir /upper/upper /upper/work
layers=lowerdir=/lower,upperdir=/upper/upper,workdir=/upper/work
$B mount -t overlay -o $layers root /new || echo "no overlay"
for place in proc sys dev; do $B mount --move "/$place" "/new/$place"; done
$B mkdir -p /new/dev/shm /new/dev/pts
$B mount -t tmpfs -o mode=1777 shm /new/dev/shm
$B mount -t devpts -o mode=620 pts /new/dev/pts
$B mount -t tmpfs -o mode=755 run /new/run
$B mount -t tmpfs -o mode=1777 tmp /new/var/tmp
$B mkdir -p "/new$lab_dir" /new/run/sshd /new/run/lock
$B mount -o bind "/lower$lab_dir" "/new$lab_dir"
$B cp "/new$lab_dir/$lab_host/hosts" /new/etc/hosts
$B rm -f /new/.dockerenv
echo "$lab_name" >/new/etc/hostname
$B hostname "$lab_name"
$B ip link set lo up
$B ip link set eth0 mtu "$lab_mtu" up
$B ip addr add "$lab_address" dev eth0
exec $B switch_root /new /bin/sh "$lab_dir/$lab_host/guest.sh"
"""
"""The first program of an emulated machine: modules, the files under an overlay, its address. ``guest.sh`` is
what it runs then: Soft-RoCE on its NIC, then sshd in its place."""
