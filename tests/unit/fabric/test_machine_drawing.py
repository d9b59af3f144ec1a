"""The drawing of a machine: well-formed, complete, and harmless whatever a device is called."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from tests.fabric_hosts import NAMES, facts
from tests.unit.fabric.machines import changed, gpu_machine, host, port, rdma

from ringleader.fabric.topology.drawing import NOT_KNOWN, machine_drawing, machine_layout

SVG = "{http://www.w3.org/2000/svg}"


def words(drawing: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


def test_a_machine_with_everything():
    drawing = machine_drawing(gpu_machine())
    found = words(drawing)
    assert found[0] == "node1: 8 GPUs, 8 RDMA devices"
    assert "NUMA node 0 · CPUs 0-31" in found and "switch 0000:11:00.0" in found
    assert {f"mlx5_{at} ← GPU{at}" for at in range(8)} <= set(found)
    assert drawing.count('class="pair"') == 8 and "GPU0 – mlx5_0:1: PIX" in drawing
    assert "prefers-color-scheme: dark" in drawing and "http" not in drawing.replace(SVG[1:-1], "")


def test_where_cards_hang():
    (first, second) = machine_layout(gpu_machine())
    assert (first.number, len(first.roots), second.number) == (0, 4, 1)
    (group,) = first.roots[0].groups
    assert group.switch == "0000:11:00.0" and [one.label for one in group.cards] == ["GPU0", "mlx5_0"]
    (soft,) = machine_layout(host(devices=(rdma("rxe0", port("Ethernet")),)))
    assert soft.number is None and soft.roots[0].name == NOT_KNOWN


@pytest.mark.parametrize("name", NAMES)
def test_every_host_can_be_drawn(name):
    found = words(machine_drawing(facts(name)))
    assert all(any(one.name in word for word in found) for one in facts(name).rdma_devices)


def test_names_cannot_break_out():
    evil = '</text><script>"&\x00'
    machine = gpu_machine()
    machine = changed(machine, hostname=evil, gpus=(replace(machine.gpus[0], name=evil),))
    drawing = machine_drawing(machine)
    assert "<script" not in drawing and words(drawing)[0].startswith('</text><script>"&?')
