"""What this machine must offer before a lab can be made; everything that is missing, at once."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from ringleader.agents.usable_cores import usable_cpus
from ringleader.errors import Fault, RefusedError, refuse
from ringleader.lab import initramfs
from ringleader.lab.host_files import MEMORY, Machine
from ringleader.lab.rootfs import root_is_locked, rootfs_facts
from ringleader.lab.spec import LabSpec

TOOLS = {
    **dict.fromkeys(("ip", "tc"), "iproute2"),
    **dict.fromkeys(("ssh", "ssh-keygen"), "openssh-client"),
    "sshd": "openssh-server",
    **dict.fromkeys(("nsenter", "unshare", "setsid", "mountpoint"), "util-linux"),
    "mount": "mount",
}
"""Program → Debian's package."""

SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def find(tool: str, path: str, *, system: tuple[str, ...] = SYSTEM_PATH) -> str | None:
    """Return a program's path; administrators' directories are looked in even where PATH lacks them."""
    return shutil.which(tool, path=os.pathsep.join([path, *system]))


def _missing(tools: Mapping[str, str], where: str, path: str, system: tuple[str, ...]) -> list[Fault]:
    """Return a fault that names the programs that are missing, and the packages that have them."""
    missing = [tool for tool in tools if find(tool, path, system=system) is None]
    packages = " ".join(dict.fromkeys(tools[tool] for tool in missing))
    what, hint = f"missing: {', '.join(missing)}", f"apt-get install {packages}"
    return [Fault(where=where, what=what, hint=hint)] if missing else []


def check_machine(
    environ: Mapping[str, str], *, euid: int | None = None, system: tuple[str, ...] = SYSTEM_PATH
) -> None:
    """Raise RefusedError naming everything that a lab needs and this machine lacks."""
    faults = []
    if (os.geteuid() if euid is None else euid) != 0:
        hint = "sudo ringleader lab …; in a container: --privileged"
        faults.append(Fault(where="lab", what="only root may make network namespaces", hint=hint))
    faults += _missing(TOOLS, "lab", environ.get("PATH", ""), system)
    if not sys.platform.startswith("linux"):
        faults.append(Fault(where="lab", what="network namespaces exist on Linux only"))
    refuse(faults, RefusedError)


MACHINE_TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "rdma": "iproute2"}
"""Program → Debian's package: what emulated machines need besides."""
KERNEL_PACKAGE = "linux-image-amd64"
SPARE_MEMORY = 256
"""MiB that this machine keeps besides what emulated machines take."""


def machine_faults(spec: LabSpec, environ: Mapping[str, str], root: Path = Path("/")) -> list[Fault]:
    """Return why this machine cannot emulate the lab's hosts; ``root`` stands for ``/``."""
    faults = _missing(MACHINE_TOOLS, "--rdma", environ.get("PATH", ""), SYSTEM_PATH)
    if not initramfs.kernels(Path(spec.kernel)):
        what = f"no kernel with Soft-RoCE below {spec.kernel}: boot/vmlinuz-V and rdma_rxe in lib/modules/V"
        hint = f"unpack Debian's {KERNEL_PACKAGE} (scripts/rdma_kernel DIR) and name it: --kernel DIR"
        faults.append(Fault(where="--rdma", what=what, hint=hint))
    if not (root / "dev/net/tun").exists():
        faults.append(Fault(where="--rdma", what="there is no /dev/net/tun", hint="modprobe tun"))
    wanted = spec.hosts * MEMORY + SPARE_MEMORY
    found = re.search(r"^MemAvailable:\s*(\d+) kB", (root / "proc/meminfo").read_text(), re.MULTILINE)
    if found and int(found[1]) // 1024 < wanted:
        what = f"{spec.hosts} hosts need {wanted} MiB, and {int(found[1]) // 1024} MiB are free"
        faults.append(Fault(where="--rdma", what=what, hint="make fewer hosts (--hosts 2), or free memory"))
    return faults


def port_faults(port: int) -> list[Fault]:
    """Return a fault where something on this machine already listens on the lab's ssh port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                what = f"port {port} is in use on this machine"
                hint = "give another one: a connection that misses the lab must find nothing there"
                return [Fault(where="--ssh-port", what=what, hint=hint)]
    return []


def machine(spec: LabSpec, environ: Mapping[str, str], root: Path) -> Machine:
    """Return what the plan has to know of this machine."""
    found = initramfs.kernels(Path(spec.kernel)) if spec.kernel else []
    image = found[-1][0] if found else ""
    full, path = socket.gethostname(), environ.get("PATH", "")
    own = tuple(dict.fromkeys([full, full.split(".")[0]]))
    tree = rootfs_facts(spec.tree) if spec.tree else None
    return Machine(
        root=str(root),
        head_names=own,
        missing_names=tuple(name for name in own if not _resolves(name)),
        path=tree.search_path if tree else _session_path(environ),
        cores=usable_cpus(),
        sshd=tree.sshd if tree else find("sshd", path) or "/usr/sbin/sshd",
        use_pam=tree.root_is_locked if tree else _root_is_locked(),
        variables=tree.environment if tree else (),
        kept=_own_directories(),
        python=sys.executable,
        qemu=find("qemu-system-x86_64", path) or "qemu-system-x86_64",
        busybox=find("busybox", path) or "busybox",
        kernel=str(image),
    )


def _own_directories() -> tuple[str, ...]:
    """Return the directories that hold Ringleader and its interpreter, none of them inside another."""
    package = str(Path(__file__).parents[2])
    found = {path for one in (sys.prefix, sys.base_prefix, package) for path in (one, os.path.realpath(one))}
    return tuple(sorted(one for one in found if not any(one.startswith(f"{other}/") for other in found)))


def _resolves(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None, socket.AF_INET)
    except OSError:
        return False
    return True


def _session_path(environ: Mapping[str, str]) -> str:
    """Our own interpreter's directory first (its mpirun, prted and python), then the user's."""
    words = [str(Path(sys.executable).parent), *environ.get("PATH", "").split(os.pathsep), *SYSTEM_PATH]
    return os.pathsep.join(dict.fromkeys(word for word in words if word.startswith("/") and '"' not in word))


def _root_is_locked() -> bool:
    try:
        return root_is_locked(Path("/etc/shadow").read_text())
    except OSError:
        return False
