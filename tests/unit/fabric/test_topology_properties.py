"""What holds for any machine: distances, NICs of ranks, and settings against those of the user."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fabric.machines import changed, host, pci, port, rdma

from ringleader.fabric.facts import Gpu, HostFacts
from ringleader.fabric.settings.recommended_settings import recommend
from ringleader.fabric.topology.drawing import machine_drawing
from ringleader.fabric.topology.matrix import matrix_text, parse_nvidia_smi, topology_matrix
from ringleader.fabric.topology.nic_assignment import assign_nics
from ringleader.fabric.topology.pci_distance import pci_distance

PARTS = ("0000:01:00.0", "0000:02:00.0", "0000:03:00.0")


@st.composite
def machines(draw: st.DrawFn) -> HostFacts:
    """GPUs and NICs at random places of a PCI tree, some of them without one."""

    def device(number: int):
        root = draw(st.sampled_from(["pci0000:00", "pci0000:80"]))
        path = "/".join([root, *PARTS[: draw(st.integers(0, 3))], f"0000:{number:02x}:00.0"])
        return pci(path, draw(st.sampled_from([None, 0, 1])))

    gpus = [device(0x40 + at) for at in range(draw(st.integers(0, 4)))]
    nics = [device(0x60 + at) for at in range(draw(st.integers(0, 4)))]
    layers = st.sampled_from(["InfiniBand", "Ethernet"])
    found = host(
        devices=tuple(
            rdma(
                f"mlx5_{at}",
                port(draw(layers), gbits=draw(st.sampled_from([100, 400])), state=draw(STATES)),
                pci=one.address,
            )
            for at, one in enumerate(nics)
        ),
        nccl=draw(st.sampled_from(["", "2.18.1", "2.25.1", "2.30.3"])),
        memlock=draw(st.sampled_from([-1, 65536])),
    )
    return changed(
        found,
        gpus=tuple(Gpu(index=at, pci_address=one.address) for at, one in enumerate(gpus)),
        pci_devices=tuple(one for one in (*gpus, *nics) if draw(st.booleans())),
    )


STATES = st.sampled_from(["ACTIVE", "ACTIVE", "DOWN", ""])


@given(machines())
def test_any_machine(facts):
    for one in facts.pci_devices:
        for other in facts.pci_devices:
            assert pci_distance(one, other) is pci_distance(other, one)
    matrix = topology_matrix(facts)
    if facts.gpus:
        table = matrix_text(matrix).replace("?", "SYS")
        assert [one.label for one in parse_nvidia_smi(table).devices] == [one.label for one in matrix.devices]
    machine_drawing(facts)
    assigned = assign_nics(facts)
    if facts.gpus and assigned:
        assert [one.gpu for one in assigned] == list(facts.gpus)
        usable = {one.nic.device.name for one in assigned}
        first = {one.nic.device.name for one in assigned if not one.shared}
        assert usable == first
    found = recommend(facts)
    assert all(one.value and one.reason for one in found.settings)
    chosen = dict.fromkeys(found.variables, "mine")
    assert not set(recommend(facts, user=chosen).variables) & set(chosen)
