"""A host as files: its system, its software, and the devices of ``DeviceTree``."""

from tests.fabric_hosts.device_tree import DeviceTree

LIBRARIES = "usr/lib/x86_64-linux-gnu"
SITE_PACKAGES = "usr/lib/python3/dist-packages"
CAPABILITIES_OF_A_CONTAINER = 0x00000000A80425FB
"""What Docker and containerd grant root."""
IPC_LOCK = 1 << 14
ALL_CAPABILITIES = 0x000001FFFFFFFFFF


class Tree(DeviceTree):
    """All files of a host, and what a process on it has beside them."""

    def __init__(self, hostname: str) -> None:
        super().__init__()
        self.environ: dict[str, str] = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root"}
        self.file("proc/sys/kernel/hostname", hostname)

    def system(
        self,
        *,
        kernel="6.8.0-45-generic",
        name="Ubuntu 24.04.1 LTS",
        memory,
        cpus,
        nodes=None,
        modules=(),
        command_line="BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro",
        shm="",
        hypervisor=False,
        group="0::/user.slice/session-1.scope",
    ):
        """Add what /proc tells of the kernel, memory (GiB) and NUMA nodes (number → CPUs)."""
        self.all("proc/sys/kernel", {"osrelease": kernel, "arch": "x86_64"})
        self.file("etc/os-release", f'PRETTY_NAME="{name}"\nNAME="{name.split()[0]}"')
        self.file("proc/meminfo", f"MemTotal:  {memory << 20} kB\nMemAvailable:  {memory << 19} kB")
        self.file("proc/cmdline", command_line)
        self.file("proc/modules", "\n".join(f"{one} 16384 0 - Live 0x0000000000000000" for one in modules))
        flags = "fpu vme sse2 avx512f" + (" hypervisor" if hypervisor else "")
        self.file("proc/cpuinfo", f"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: {flags}")
        size = shm or f"{memory << 19}k"
        self.file("proc/mounts", f"proc /proc proc rw 0 0\ntmpfs /dev/shm tmpfs rw,nosuid,size={size} 0 0")
        self.file("proc/self/cgroup", group)
        self.file("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc")
        nodes = nodes or {0: cpus}
        for node, listing in nodes.items():
            place = f"sys/devices/system/node/node{node}"
            share = (memory << 20) // len(nodes)
            distances = " ".join("10" if other == node else "21" for other in nodes)
            self.all(
                place,
                {"cpulist": listing, "meminfo": f"Node {node} MemTotal:  {share} kB", "distance": distances},
            )
        self._cpus = cpus
        self.file("proc/uptime", "3456789.01 98765432.10")

    def governor(self, governor: str, driver: str = "intel_pstate", policies: int = 2) -> None:
        """Add how clocks are scaled."""
        for number in range(policies):
            place = f"sys/devices/system/cpu/cpufreq/policy{number}"
            self.all(place, {"scaling_driver": driver, "scaling_governor": governor})

    def process(
        self,
        *,
        uid=0,
        capabilities=ALL_CAPABILITIES,
        bounding=None,
        memlock="unlimited",
        nofile=1048576,
        nofile_hard=None,
        stack="8388608",
        seccomp=0,
        label="unconfined",
    ):
        """Add what /proc/self tells."""
        bounding = capabilities if bounding is None else bounding
        self.file(
            "proc/self/status",
            f"Name:\tpython3\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{capabilities:016x}\n"
            f"CapBnd:\t{bounding:016x}\nSeccomp:\t{seccomp}\nCpus_allowed_list:\t{self._cpus}",
        )
        rows = {
            "Max stack size": (stack, "unlimited"),
            "Max core file size": ("0", "unlimited"),
            "Max processes": ("514209", "514209"),
            "Max open files": (str(nofile), str(nofile_hard or nofile)),
            "Max locked memory": (memlock, memlock),
            "Max address space": ("unlimited", "unlimited"),
        }
        lines = [f"{name:<25} {soft:<20} {hard:<20} units" for name, (soft, hard) in rows.items()]
        self.file("proc/self/limits", "\n".join(["Limit  Soft Limit  Hard Limit  Units", *lines]))
        self.file("proc/self/attr/current", label)

    def sysctl(self, name: str, value: object) -> None:
        """Add a setting by its dotted name."""
        self.file(f"proc/sys/{name.replace('.', '/')}", str(value))

    def huge_pages(self, total: int, free: int | None = None, *, kibibytes: int = 2048) -> None:
        self.all(
            f"sys/kernel/mm/hugepages/hugepages-{kibibytes}kB",
            {"nr_hugepages": total, "free_hugepages": total if free is None else free},
        )

    def library(self, name: str, version: str = "", place: str = LIBRARIES) -> None:
        real = f"{name}.{version}" if version else name
        self.file(f"{place}/{real}", b"\x7fELF")
        if version:
            self.link(f"{place}/{name}", f"{place}/{real}")

    def verbs(self, *providers: str, release: str = "50.0", has_cm: bool = True) -> None:
        """Add rdma-core's libraries with some of its providers; ``has_cm``: the connection manager's file."""
        self.file("sys/module/ib_core/parameters/netns_mode", "Y")
        if has_cm:
            self.file("dev/infiniband/rdma_cm", "")
        self.library("libibverbs.so.1", f"14.{release}")
        self.library("librdmacm.so.1", f"3.{release}")
        for one in providers:
            self.file(f"etc/libibverbs.d/{one}.driver", f"driver {one}")
            self.library(f"lib{one}-rdmav34.so", place=f"{LIBRARIES}/libibverbs")

    def program(self, *paths: str) -> None:
        """Add executable files, as scripts."""
        for path in paths:
            self.file(path.lstrip("/"), "#!/bin/sh")

    def package(self, name: str, version: str) -> None:
        self.file(f"{SITE_PACKAGES}/{name.replace('-', '_')}-{version}.dist-info/METADATA", f"Name: {name}")

    def software(self, *, gpus: bool) -> None:
        """Add what a host needs that can train: Python's packages, an MPI, ssh, and NVIDIA's libraries."""
        self.program("usr/bin/python3.12", "usr/bin/mpirun", "usr/bin/ssh", "usr/sbin/sshd")
        self.link("usr/bin/python3", "usr/bin/python3.12")
        packages = {"ringleader": "0.1.0", "numpy": "2.1.3", "mpi4py": "4.1.0", "torch": "2.8.0"}
        for name, version in packages.items():
            self.package(name, version)
        self.file(
            f"{LIBRARIES}/libmpi.so.40", b"\x7fELF\0v5.0.8\0 mca_pml_ucx_component mca_mtl_ofi_component"
        )
        self.library("libucp.so.0", "0.0")
        self.file(
            "var/lib/dpkg/status", "Package: libucx0\nStatus: install ok installed\nVersion: 1.16.0-1\n"
        )
        if gpus:
            self.package("nvidia-nccl-cu12", "2.27.5")
            self.file(f"{SITE_PACKAGES}/nvidia/nccl/lib/libnccl.so.2", b"\x7fELF")
            driver = self.files["sys/module/nvidia/version"]
            for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
                self.file(f"{LIBRARIES}/{name.removesuffix('1')}{driver}", b"\x7fELF")
                self.link(f"{LIBRARIES}/{name}", f"{LIBRARIES}/{name.removesuffix('1')}{driver}")
