"""Scripts of hosts that are emulated machines with Soft-RoCE; ``boot_scripts`` has those of others. Pure.

QEMU is process 1 of the host's namespaces, so what ends, cuts or slows a host does the same to its machine,
whose NIC is joined to the host's link. It runs on this machine's files, read only over 9p, under an overlay.
"""

from __future__ import annotations

from shlex import quote

from ringleader.lab.boot_scripts import LEAVE_NAMESPACES, start_first
from ringleader.lab.spec import LabSpec
from ringleader.lab.steps import Command, Step

MEMORY = 1536
"""MiB of a machine, of which PyTorch's import takes a third; ``doctor`` wants 1 GiB to be free."""
MODULES = (
    *("virtio_pci", "virtio_net", "9p", "9pnet_virtio", "overlay", "veth"),
    *("crc32_generic", "ib_umad", "ib_uverbs", "rdma_ucm", "rdma_rxe"),
)
"""What the machine's kernel loads; without crc32_generic rxe says "failed to add"."""
DEVICE = "rxe0"


def network_argvs(spec: LabSpec, number: int, *, mtu: int) -> list[tuple[str, ...]]:
    """Return the commands that join the machine's NIC, ``tap0``, to the host's end of its cable, ``eth0``."""
    ip = ("ip", "-n", spec.namespace(number))
    return [
        (*ip, "link", "add", "br0", "mtu", str(mtu), "type", "bridge"),
        (*ip, "tuntap", "add", "dev", "tap0", "mode", "tap"),
        *((*ip, "link", "set", name, "mtu", str(mtu), "master", "br0") for name in ("eth0", "tap0")),
        *((*ip, "link", "set", name, "addrgenmode", "none", "up") for name in ("br0", "tap0", "eth0")),
    ]


def initramfs_step(kernel: str, busybox: str, directory: str, python: str) -> Step:
    """Return the step that packs what the machines boot from."""
    words = (kernel, busybox, f"{directory}/init", f"{directory}/initramfs")
    # Its standard input would be the lab's lock, a directory, with which Python does not start.
    shell = ("sh", "-c", '"$@" </dev/null', "sh")
    return Command(argv=(*shell, python, "-P", "-m", "ringleader.lab.initramfs", *words))


def boot_script(number: int, directory: str) -> str:
    """Return the script that starts the machine in fresh namespaces and comes back."""
    own = f"{directory}/h{number}"
    return f"""\
set -e
{LEAVE_NAMESPACES}
cd /
{start_first(own, log=">")}
"""


def first_script(spec: LabSpec, number: int, directory: str, *, qemu: str, kernel: str, mtu: int) -> str:
    """Return the script that becomes QEMU. ``kernel``: its file, of this machine."""
    words = {
        "lab_dir": directory,
        "lab_host": f"h{number}",
        "lab_name": spec.host_names[number - 1],
        "lab_address": f"{spec.address(number)}/{spec.prefix_length}",
        "lab_mtu": str(mtu),
    }
    given = " ".join(f"{name}={value}" for name, value in words.items())
    # With no_timer_check a boot beside other load does not stand still at the test of the timer.
    line = f"console=ttyS0 quiet panic=-1 no_timer_check {given}"
    mac = f"52:54:00:{number // 256:02x}:{number % 256:02x}:01"
    return f"""\
exec {quote(qemu)} -accel tcg,thread=single -cpu max -smp 1 -m {MEMORY} \\
    -nodefaults -display none -no-reboot -serial stdio \\
    -kernel {quote(kernel)} -initrd {directory}/initramfs -append {quote(line)} \\
    -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \\
    -device virtio-9p-pci,fsdev=root,mount_tag=root \\
    -netdev tap,id=net,ifname=tap0,script=no,downscript=no \\
    -device virtio-net-pci,netdev=net,mac={mac},host_mtu={mtu},romfile= </dev/null
"""


def init_script() -> str:
    """Return the first program of the machine: modules, the files under an overlay, its address."""
    return """\
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


def guest_script(number: int, directory: str, *, sshd: str) -> str:
    """Return what the machine runs on its files: Soft-RoCE on its NIC, then sshd in its place."""
    return f"""\
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
ulimit -l unlimited
ulimit -n 1048576
rdma link add {DEVICE} type rxe netdev eth0
exec {sshd} -D -e -f {directory}/h{number}/sshd_config
"""
