"""Every rule of the settings, on both of its sides."""

from dataclasses import replace

import pytest
from tests.fabric_hosts import facts
from tests.unit.fabric.machines import (
    LINK_LOCAL,
    ROCE_GIDS,
    V4_MAPPED,
    changed,
    gpu_machine,
    host,
    interface,
    port,
    rdma,
)

from ringleader.errors import RequestError
from ringleader.fabric.facts import Gid, Gpu, Library, MpiFacts
from ringleader.fabric.settings.recommended_settings import agreed, recommend
from ringleader.fabric.settings.setting import Setting, Settings
from ringleader.fabric.topology.gpudirect import rdma_verdicts

SINGLE_COPY = "OMPI_MCA_btl_vader_single_copy_mechanism"
UCX_DEVICES = "OMPI_MCA_opal_common_ucx_devices"
GPUS = (Gpu(index=0, pci_address="0000:18:00.0"),)
IB = rdma("mlx5_0", port(), pci="0000:01:00.0")
ROCE = rdma("mlx5_0", port("Ethernet"), pci="0000:01:00.0")
STORAGE = rdma("mlx5_bond_0", port("Ethernet", gbits=100), pci="0000:02:00.0")
IWARP = rdma("iwp1", port("Ethernet"), node_type=4, driver="irdma", pci="0000:01:00.0")
ERDMA = rdma("erdma_0", port("Ethernet"), node_type=4, driver="erdma", pci="0000:01:00.0")
EFA = rdma("rdmap0", port("", gids=()), node_type=7, driver="efa", pci="0000:01:00.0")
UCX = (Library(name="libucp.so.0", path="/usr/lib/libucp.so.0", version="1.16.0"),)
WIRED = (interface("lo", "127.0.0.1"), interface("eth0", "10.0.0.1", "fe80::1"))
DOCKER, BRIDGE = interface("docker0", "172.17.0.1"), interface("br-0a1b", "172.18.0.1")
BMC = interface("enx0", "169.254.3.1")
OPEN_MPI_4 = MpiFacts(family="Open MPI", version="4.1.6", mpirun="/m", built_with={"ucx": True})
OPEN_MPI_5 = replace(OPEN_MPI_4, version="5.0.8")
OLD_CONTAINER = host(mpi=OPEN_MPI_4, container="docker", kernel="3.10.0-1160.el7.x86_64")
OLD_CONTAINER = changed(OLD_CONTAINER, process=replace(OLD_CONTAINER.process, seccomp=2))
MPICH_WHEEL = MpiFacts(family="MPICH", version="4.3.1", mpirun="/m", embedded=True)
INTEL = MpiFacts(family="Intel MPI", version="2021.13", mpirun="/m")
SIX = (
    Gid(index=0, address=LINK_LOCAL, kind="IB/RoCE v1", netdev="eth1"),
    Gid(index=1, address="2001:0db8:0000:0000:0000:0000:0000:0001", kind="RoCE v2", netdev="eth1"),
)
ONE_BY_ONE = (
    Gid(index=0, address=LINK_LOCAL, kind="IB/RoCE v1", netdev="eth1"),
    Gid(index=1, address=V4_MAPPED + "0a00:0002", kind="IB/RoCE v1", netdev="eth1"),
)


OWN = rdma("mlx5_0", port("Ethernet", gids=ONE_BY_ONE))
OTHER = rdma("mlx5_1", port("Ethernet", gids=ONE_BY_ONE), pci="0000:03:00.0")
BARE = rdma("mlx5_1", port("Ethernet", gids=ROCE_GIDS[:2]), pci="0000:03:00.0")
NET1, ETH1 = interface("net1", "10.2.0.1"), interface("eth1", "10.1.0.1")
INCLUDED = {"environment": {"OMPI_MCA_btl_tcp_if_include": "eth0"}}


def gpu_host(*devices, **values):
    return host(devices=devices, gpus=GPUS, **values)


def test_a_rule():
    for machine, variable, value in (
        # NCCL_IB_HCA: only where NCCL would take a port that it should not.
        (gpu_host(IB), "NCCL_IB_HCA", None),
        (gpu_host(IB, STORAGE), "NCCL_IB_HCA", "=mlx5_0:1"),
        (gpu_host(IB, rdma("mlx5_1", port()), without_files=("mlx5_1",)), "NCCL_IB_HCA", "=mlx5_0:1"),
        # Sysfs of a Pod may show no GPU although it has some.
        (host(devices=(IB, STORAGE), nccl=""), "NCCL_IB_HCA", "=mlx5_0:1"),
        (gpu_host(IB, STORAGE, environment={"NCCL_IB_DISABLE": "1"}), "NCCL_IB_HCA", None),
        # The GID's index: RoCE before 2.21 alone.
        (gpu_host(ROCE, nccl="2.20.5"), "NCCL_IB_GID_INDEX", "3"),
        (gpu_host(ROCE, nccl="2.21.0"), "NCCL_IB_GID_INDEX", None),
        (gpu_host(IB, nccl="2.18.1"), "NCCL_IB_GID_INDEX", None),
        (gpu_host(OWN, nccl="2.18.1"), "NCCL_IB_GID_INDEX", "1"),
        (gpu_host(ROCE, OTHER, nccl="2.18.1"), "NCCL_IB_GID_INDEX", None),
        # A port without an IP address is none to use.
        (gpu_host(ROCE, BARE, nccl="2.18.1"), "NCCL_IB_HCA", "=mlx5_0:1"),
        # Only the ports of the user's own filter count.
        (
            gpu_host(ROCE, BARE, nccl="2.18.1", environment={"NCCL_IB_HCA": "=mlx5_0:1"}),
            "NCCL_IB_GID_INDEX",
            "3",
        ),
        (gpu_host(rdma("mlx5_0", port("Ethernet", gids=SIX))), "NCCL_IB_ADDR_FAMILY", "AF_INET6"),
        # The timeout, by version.
        (gpu_host(IB, nccl="2.22.3"), "NCCL_IB_TIMEOUT", "20"),
        (gpu_host(IB, nccl="2.23.4"), "NCCL_IB_TIMEOUT", None),
        # iWARP, but for eRDMA.
        (gpu_host(IWARP), "NCCL_IB_DISABLE", "1"),
        (gpu_host(ERDMA), "NCCL_IB_DISABLE", None),
        # Host memory by cuMem.
        (gpu_host(nccl="2.26.5", container="docker"), "NCCL_CUMEM_HOST_ENABLE", None),
        (gpu_host(nccl="2.25.1"), "NCCL_CUMEM_HOST_ENABLE", None),
        # Interfaces: NCCL skips docker0 itself.
        (gpu_host(net_devices=(*WIRED, DOCKER)), "NCCL_SOCKET_IFNAME", None),
        (gpu_host(net_devices=(*WIRED, DOCKER, BRIDGE)), "NCCL_SOCKET_IFNAME", "^docker,lo,br-0a1b"),
        (gpu_host(net_devices=(*WIRED, BMC)), "NCCL_SOCKET_IFNAME", "^docker,lo,enx0"),
        (gpu_host(net_devices=(*WIRED, BRIDGE, interface("ib0", "10.1.0.1"))), "NCCL_SOCKET_IFNAME", None),
        (gpu_host(ROCE, net_devices=(*WIRED, NET1), container="kubernetes"), "NCCL_SOCKET_IFNAME", "=eth0"),
        # A laptop is no cluster.
        # UCX: ports that may not reach the others.
        (host(devices=(IB, STORAGE), libraries=UCX), "UCX_NET_DEVICES", "mlx5_0:1"),
        # libfabric.
        (host(devices=(EFA,)), "FI_PROVIDER", "efa"),
        (host(devices=(EFA,), mpi=MPICH_WHEEL), "FI_PROVIDER", None),
        (host(devices=(EFA,), kernel="5.10.0-28"), "FI_EFA_FORK_SAFE", "1"),
        (host(devices=(EFA,), mpi=INTEL), "I_MPI_OFI_PROVIDER", "efa"),
        (host(devices=(EFA,), mpi=INTEL, environment={"FI_PROVIDER": "efa"}), "I_MPI_OFI_PROVIDER", None),
        (host(net_devices=(*WIRED, DOCKER), mpi=INTEL), "FI_TCP_IFACE", "eth0"),
        (host(net_devices=(*WIRED, DOCKER), mpi=OPEN_MPI_5), "FI_TCP_IFACE", None),
        # Open MPI.
        (host(devices=(IB,), mpi=OPEN_MPI_4), "OMPI_MCA_btl", "^openib"),
        (host(devices=(IB,), mpi=OPEN_MPI_5), "OMPI_MCA_btl", None),
        (host(devices=(replace(ROCE, name="bnxt_re0"),), mpi=OPEN_MPI_5), UCX_DEVICES, "any"),
        (
            host(net_devices=(*WIRED, DOCKER, BMC), mpi=OPEN_MPI_5),
            "OMPI_MCA_btl_tcp_if_exclude",
            "127.0.0.1/8,sppp,docker0,enx0",
        ),
        (host(net_devices=(*WIRED, DOCKER), mpi=OPEN_MPI_5, **INCLUDED), "OMPI_MCA_btl_tcp_if_exclude", None),
        # Shared memory: copies between processes of a container.
        (OLD_CONTAINER, SINGLE_COPY, "none"),
        (changed(OLD_CONTAINER, kernel="5.4.0"), SINGLE_COPY, None),
        (changed(OLD_CONTAINER, process=replace(OLD_CONTAINER.process, seccomp=0)), SINGLE_COPY, None),
        # Gloo.
        (host(net_devices=(*WIRED, DOCKER)), "GLOO_SOCKET_IFNAME", "eth0"),
        (host(net_devices=(*WIRED, DOCKER, ETH1)), "GLOO_SOCKET_IFNAME", None),
    ):
        found = recommend(machine)
        assert found.variables.get(variable) == value
        assert all(one.reason and not one.reason.endswith(".") for one in found.settings)


def test_why_no_port_is_used():
    found = recommend(host(devices=(IB, STORAGE), without_files=("mlx5_0", "mlx5_bond_0")))
    assert found.settings == () and found.not_set[0].variable == ""
    assert found.not_set[0].reason.startswith("no port can be used: mlx5_0:1: there is no /dev/infiniband")
    assert found.not_set[0].reason.endswith("; and 1 more")


def test_without_locked_memory_nothing_steers_to_rdma():
    facts = gpu_host(IB, STORAGE, memlock=8 << 20, mpi=OPEN_MPI_4)
    found = recommend(facts)
    assert found.variables == {"OMPI_MCA_btl": "^openib"}
    why = next(one.reason for one in found.not_set if one.variable == "NCCL_IB_HCA")
    assert "8192 KiB" in why and "CAP_IPC_LOCK" in why
    plain = recommend(gpu_host(IB, memlock=8 << 20))
    assert plain.settings == () and "RDMA cannot work" in plain.not_set[-1].reason
    assert "NCCL_IB_HCA" in recommend(changed(facts, process=gpu_host(IB).process)).variables


def test_no_sentence_contradicts_that_rdma_cannot_work():
    for one in (gpu_host(IB, libraries=UCX, mpi=OPEN_MPI_5), gpu_host(ROCE, libraries=UCX, mpi=OPEN_MPI_5)):
        found = recommend(changed(one, process=gpu_host(memlock=64 << 10).process))
        assert [one.variable for one in found.not_set] == [""] and found.left_to_the_user == ()
    low = changed(facts("hgx_ndr"), process=gpu_host(memlock=64 << 10).process)
    assert {str(one.verdict) for one in rdma_verdicts(low)} == {"no"}
    assert all("may lock 64 KiB" in one.reason for one in rdma_verdicts(low))


def test_never_over_what_the_user_set():
    for where, said in (
        ({"user": {"NCCL_IB_HCA": "mlx5_9"}}, "the user's environment sets NCCL_IB_HCA=mlx5_9"),
        ({"environment": {"NCCL_IB_HCA": "mlx5_9"}}, "the host's environment sets"),
        ({"nccl_files": {"/etc/nccl.conf": {"NCCL_IB_HCA": "mlx5_9"}}}, "/etc/nccl.conf sets"),
    ):
        user = where.pop("user", None)
        found = recommend(gpu_host(IB, STORAGE, **where), user=user)
        assert "NCCL_IB_HCA" not in found.variables
        why = next(one.reason for one in found.not_set if one.variable == "NCCL_IB_HCA")
        assert said in why and "=mlx5_0:1 would fit" in why


def test_what_only_the_user_knows():
    assert [one.variable for one in recommend(gpu_host(ROCE)).left_to_the_user] == ["NCCL_IB_TC"]
    assert recommend(gpu_host(ERDMA)).left_to_the_user == ()  # no RoCE: its cloud decides
    assert recommend(gpu_host(ROCE), user={"NCCL_IB_TC": "106"}).left_to_the_user == ()
    assert "NCCL_NET_PLUGIN" in [one.variable for one in recommend(gpu_host(EFA)).left_to_the_user]


def test_a_local_rank_gets_the_nic_at_its_gpu():
    facts = changed(gpu_machine(swapped=True), libraries=UCX)
    assert recommend(facts, local_rank=0).variables == {"UCX_NET_DEVICES": "mlx5_7:1"}
    assert recommend(facts, local_rank=7).variables == {"UCX_NET_DEVICES": "mlx5_0:1"}
    assert recommend(facts).variables == {}
    assert recommend(gpu_machine(), local_rank=0).variables == {}


@pytest.mark.parametrize("facts", [gpu_machine(), host(), host(devices=(IB,))])
def test_a_local_rank_without_a_place(facts):
    with pytest.raises(RequestError) as caught:
        recommend(facts, local_rank=99)
    assert caught.value.faults[0].where == "--local-rank" and caught.value.faults[0].hint


def test_what_chooses_a_protocol_is_alike_on_all_hosts():
    wide = Setting(variable="FI_PROVIDER", value="efa", reason="r", library="libfabric", job_wide=True)
    own = Setting(variable="NCCL_IB_HCA", value="=a:1", reason="r", library="NCCL")
    both, plain = Settings(settings=(wide, own)), Settings(settings=(own,))
    assert agreed({"h1": both, "h2": both}) == {"h1": both, "h2": both}
    found = agreed({"h1": both, "h2": plain, "h3": Settings()})
    assert found["h1"].settings == (own,) and found["h2"] == plain
    assert found["h1"].not_set[0].variable == "FI_PROVIDER" and "h2, h3" in found["h1"].not_set[0].reason


POD = {"NCCL_IB_HCA": "=mlx5_4:1", "NCCL_SOCKET_IFNAME": "=eth0", "UCX_NET_DEVICES": "mlx5_4:1"}


def test_whole_hosts():
    for name in (
        "hgx_ndr",
        "hgx_ndr_swapped",
        "soft_rxe",
        "efa",
        "erdma",
        "laptop",
        "cloud_vm",
        "connectx_pod",
    ):
        found = recommend(facts(name)).variables
        assert found == (POD if name == "connectx_pod" else {}), (name, found)
    assert recommend(host(nccl="")) == Settings()
    assert recommend(host(mpi=OPEN_MPI_5, net_devices=WIRED)) == Settings()
