"""The scripts that start a host, on the machine's own file system or on a root file system of its own. Pure.

Only programs of the machine run here: all that another root file system must have is an sshd.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from shlex import quote

from ringleader.lab.config_files import OWN_TMP, SHARED_TMP
from ringleader.lab.rootfs import Bind, Rootfs
from ringleader.lab.spec import LabSpec

DEVICES = "null zero full random urandom tty"


LEAVE_NAMESPACES = """\
# Copies of other namespaces' mounts would keep those namespaces alive after their end.
if mountpoint -q /run/netns; then umount -n -l /run/netns; fi"""


def start_first(own: str, *, log: str = ">>") -> str:
    """Return the last lines of every boot script; ``log``: how the output goes to the host's boot.log."""
    return f"""\
# The next child is process 1 of the host: when it dies, the kernel kills everything on the host.
exec unshare --pid sh -c "setsid sh {own}/first.sh {log} {own}/boot.log 2>&1 &\""""


def boot_script(spec: LabSpec, number: int, directory: str, *, kept: Iterable[str] = ()) -> str:
    """Return the script that turns fresh network, mount, UTS and IPC namespaces into a host.

    ``/run`` becomes private (sshd wants ``/run/sshd``) except for the lab's directory. ``kept``: directories
    that stay where the host gets its own ``/tmp`` or ``/var/tmp``.
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
{start_first(own)}
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


def rootfs_boot_script(spec: LabSpec, tree: Rootfs, number: int, directory: str) -> str:
    """Return the script that turns fresh network, mount, UTS and IPC namespaces into a host of that tree.

    What the host writes lies in memory and ends with it. Where the kernel can't lay an overlay on the tree
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
{start_first(own)}
"""


def _bind_lines(bind: Bind) -> str:
    source, target = quote(bind.source), quote(f".{bind.target}")
    parent = quote("." + posixpath.dirname(bind.target))
    lines = (
        f"if [ -d {source} ]; then mkdir -p {target}; else mkdir -p {parent}; : >> {target}; fi\n"
        f"mount -n --bind {source} {target}\n"
    )
    return lines + (f"mount -n -o remount,bind,ro {target}\n" if bind.read_only else "")


def rootfs_first_script(number: int, directory: str, *, sshd: str) -> str:
    """Return the script that becomes a host's process 1: its own /proc, the tree as root, sshd in its place.

    The new root is moved over the old one: pivot_root would need the tree's own umount for the old one. The
    machine's tree has no path any more, though root on a host could dig it out: a lab is not a sandbox.
    """
    own = f"{directory}/h{number}"
    command = f"{quote(sshd)} -D -f {own}/sshd_config -E {own}/sshd.log"
    return f"""\
set -e
mount -n -t proc proc proc
mount -n --move . /
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . {command}
"""
