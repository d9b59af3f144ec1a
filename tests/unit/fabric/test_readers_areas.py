"""Each reader by itself, on files made for the case."""

import struct

import pytest
from tests.fabric_hosts.device_tree import config_space
from tests.fabric_hosts.file_tree import UNREADABLE
from tests.fabric_hosts.tree import Tree

from ringleader.fabric.facts import Limit
from ringleader.fabric.readers import kernel, net_devices, pci_devices, process_limits, rdma_devices
from ringleader.fabric.readers.sysfs_files import Files


@pytest.fixture
def tree():
    return Tree(hostname="host")


@pytest.fixture
def files(tmp_path, tree):

    class Written(Files):
        def _is_late(self, name):
            if tree.files or tree.links:
                tree.write(tmp_path)
                tree.files, tree.links = {}, {}
            return super()._is_late(name)

    return Written(tmp_path)


def test_control_groups_version_2_take_the_tightest_on_the_way_up(tree, files):
    tree.file("proc/self/cgroup", "0::/job/rank")
    tree.all("sys/fs/cgroup/job", {"memory.max": 1000, "pids.max": "max", "cpu.max": "150000 100000"})
    tree.all("sys/fs/cgroup/job/rank", {"memory.max": "max", "pids.max": 64, "cpu.max": "max 100000"})
    tree.file(
        "sys/fs/cgroup/job/rdma.max", "mlx5_0 hca_handle=5 hca_object=max\nmlx5_1 hca_handle=0 hca_object=0"
    )
    tree.file("sys/fs/cgroup/job/rank/rdma.max", "mlx5_0 hca_handle=9 hca_object=2000")
    found = process_limits.read_groups(files)
    assert (found.version, found.cpus, found.memory, found.processes) == (2, 1.5, 1000, 64)
    assert [(one.device, one.handles, one.objects) for one in found.rdma] == [
        ("mlx5_0", 5, 2000),
        ("mlx5_1", 0, 0),
    ]


def test_control_groups_version_1(tree, files):
    tree.file("proc/self/cgroup", "4:memory:/docker/abc\n3:pids:/\n1:cpu,cpuacct:/docker/abc\n0::/")
    # In a container the path is the host's; what is there is the root of the mount.
    tree.all("sys/fs/cgroup/memory", {"memory.limit_in_bytes": 4 << 30})
    tree.all("sys/fs/cgroup/pids", {"pids.max": "max"})
    tree.all("sys/fs/cgroup/cpu", {"cpu.cfs_quota_us": -1, "cpu.cfs_period_us": 100000})
    found = process_limits.read_groups(files)
    assert (found.version, found.cpus, found.memory, found.processes) == (1, None, 4 << 30, None)
    assert process_limits.read_groups(Files(files.root / "nothing")).version == 0
    (files.root / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text("9223372036854771712")
    assert process_limits.read_groups(files).memory is None, "so large is no limit"


def test_process_and_memory(tree, files):
    tree.system(memory=4, cpus="0-3,8", shm="64m")
    tree.process(
        uid=1000, capabilities=1 << 14, bounding=3 << 14, memlock="8388608", seccomp=2, label="x (enforce)"
    )
    tree.huge_pages(512, 100)
    tree.huge_pages(2, kibibytes=1 << 20)
    found = process_limits.read(files)
    assert (found.uid, found.capabilities, found.bounding_capabilities) == (1000, 1 << 14, 3 << 14)
    assert (found.seccomp, found.security_label, found.cpus) == (2, "x (enforce)", 5)
    assert found.limits["memlock"] == Limit(soft=8388608, hard=8388608)
    assert found.limits["stack"] == Limit(soft=8388608, hard=-1)
    memory = kernel.read_memory(files)
    names = ("memory", "memory_available", "shm_size")
    assert [memory[name] for name in names] == [4 << 30, 2 << 30, 64 << 20]
    pages = [(one.size, one.total, one.free) for one in memory["huge_pages"]]
    assert pages == [(2 << 20, 512, 100), (1 << 30, 2, 2)]


def test_acs():
    assert pci_devices.acs_redirects(config_space(acs_redirects=True)) is True
    assert pci_devices.acs_redirects(config_space(acs_redirects=False)) is False
    assert pci_devices.acs_redirects(b"\0" * 64) is None  # what an ordinary user reads
    assert pci_devices.acs_redirects(b"\0" * 4096) is None
    looped = bytearray(4096)
    struct.pack_into("<I", looped, 0x100, 0x0001 | 0x100 << 20)
    assert pci_devices.acs_redirects(bytes(looped)) is None
    assert pci_devices.acs_redirects(b"\xff" * 4096) is None


def test_net_devices(tree, files):
    tree.netdev("eth1", state="down")
    tree.netdev("veth0", state="unknown", carrier=0)
    tree.file("sys/class/net/bonding_masters", "")
    found = {one.name: one for one in net_devices.read(files, {"eth1": ["10.0.0.1", "fe80::1"]})}
    assert {name: one.up for name, one in found.items()} == {"eth1": False, "lo": True, "veth0": False}
    assert found["eth1"].addresses == ("10.0.0.1", "fe80::1") and found["eth1"].speed is None
    assert all(one.is_virtual for one in found.values()) and files.unreadable == ()


def test_containers_and_hypervisors(tmp_path):
    texts = {"etc/hosts": "# Kubernetes-managed hosts file.", "proc/mounts": "overlay / overlay rw 0 0"}
    for number, (places, environ, name) in enumerate(
        (
            ((".dockerenv",), {}, "docker"),
            (("run/.containerenv",), {}, "podman"),
            ((".dockerenv",), {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
            ((), {"APPTAINER_CONTAINER": "/x.sif"}, "apptainer"),
            (("etc/hosts", ".dockerenv"), {}, "kubernetes"),
            (("proc/mounts",), {}, "container"),
        )
    ):
        tree = Tree(hostname="host")
        for place in places:
            tree.file(place, texts.get(place, ""))
        tree.write(tmp_path / str(number))
        assert kernel.read(Files(tmp_path / str(number)), environ)["container"] == name
    for vendor, product, flag, name in (
        ("Amazon EC2", "m7i.metal-24xl", False, ""),
        ("", "", True, "virtual machine"),
    ):
        tree = Tree(hostname="host")
        tree.system(memory=1, cpus="0", hypervisor=flag)
        tree.all("sys/class/dmi/id", {"sys_vendor": vendor, "product_name": product})
        tree.write(tmp_path / f"host-{flag}")
        assert kernel.read(Files(tmp_path / f"host-{flag}"), {})["hypervisor"] == name


def test_rates_and_device_files(tree, files):
    rates = {"400 Gb/sec (4X NDR)": 400e9, "2.5 Gb/sec (1X SDR)": 2.5e9, "": None, "fast": None}
    for number, rate in enumerate(rates):
        tree.port(tree.rdma(f"mlx5_{number}"), rate=rate)
    tree.file("sys/module/ib_core/parameters/netns_mode", "N")
    tree.file("dev/infiniband/uverbs0", "")
    tree.file("dev/infiniband/uverbs1", UNREADABLE)
    tree.file("dev/infiniband/umad0", "")
    found = rdma_devices.read(files)
    ports = [one.ports[0] for one in found["rdma_devices"]]
    assert {one.rate_text: one.rate for one in ports} == rates
    assert [(one.path, one.error) for one in found["rdma_files"]] == [
        ("/dev/infiniband/uverbs0", ""),
        ("/dev/infiniband/uverbs1", "not a character device"),
    ]
    assert found["rdma_netns_exclusive"] is True
    (files.root / "sys/module/ib_core/parameters/netns_mode").write_text("Y")
    assert rdma_devices.read(files)["rdma_netns_exclusive"] is False
    assert rdma_devices.read(Files(files.root / "nothing"))["rdma_netns_exclusive"] is None


def test_variables_that_steer_transports_and_no_secret():
    steer = {"NCCL_IB_HCA": "mlx5", "UCX_TLS": "rc", "PCIDEVICE_NVIDIA_COM_HOSTDEV": "0000:03:02.1"}
    secrets = dict.fromkeys(("HOROVOD_SECRET_KEY", "NVIDIA_API_KEY", "RINGLEADER_TOKEN"), "x")
    others = {"HOME": "/root", "OMPI_MCA_sec_password": "x", "LD_LIBRARY_PATH": "/opt/\udcff"}
    assert process_limits.variables(steer | secrets | others) == {**steer, "LD_LIBRARY_PATH": "/opt/?"}


def test_files_of_nccl(tree, files):
    tree.file("etc/nccl.conf", "# comment\nNCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME = ^docker0,lo\nPATH=/x\n")
    tree.file("root/.nccl.conf", "NCCL_IB_TC=106")
    tree.file("own.conf", "NCCL_IB_TC=41")
    system = {"NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "^docker0,lo"}
    home = {"/root/.nccl.conf": {"NCCL_IB_TC": "106"}, "/etc/nccl.conf": system}
    assert process_limits.nccl_files(files, {"HOME": "/root"}) == home
    own = {"/own.conf": {"NCCL_IB_TC": "41"}, "/etc/nccl.conf": system}
    assert process_limits.nccl_files(files, {"HOME": "/root", "NCCL_CONF_FILE": "/own.conf"}) == own


def test_statistics_of_the_driver_of_interfaces_with_an_rdma_device(tree, files):
    nic = tree.pci("pci0000:00", "0000:00:05.0", vendor=1, device=2, code=0x020000)
    tree.netdev("eth0", device=nic, statistics={"rx_bytes": 7})
    tree.rdma("mlx5_0", device=nic)
    told = {"rx_vport_rdma_unicast_bytes": 5, "rx_prio3_pause": 2, "rx_bytes": 99, "ch0_poll": 1}
    found = {one.name: one.statistics for one in net_devices.read(files, {}, lambda name: told)}
    assert (
        found["eth0"].items()
        >= {"rx_bytes": 7, "rx_vport_rdma_unicast_bytes": 5, "rx_prio3_pause": 2}.items()
    )
    assert "ch0_poll" not in found["eth0"] and "rx_prio3_pause" not in found["lo"]
