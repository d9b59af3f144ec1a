"""The matrix, and what nvidia-smi prints, read and compared."""

import json

import pytest
from tests.unit.fabric.machines import gpu_machine

from ringleader.fabric.topology.matrix import (
    differences,
    matrix_text,
    matrix_values,
    parse_nvidia_smi,
    topology_matrix,
    with_nvlinks,
)

NEW = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tPIX\tNODE\t0-31\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tNODE\tPIX\t0-31\t0\t\tN/A\n"
    "NIC0\tPIX\tNODE\t X \tNODE\t\t\t\t\n"
    "NIC1\tNODE\tPIX\tNODE\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  SYS  = …\n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n\n"
)
"""As driver 535 and later print it."""
OLD = (
    "\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tNODE\tPIX\tSYS\t0-31,64-95\t0\n"
    "GPU1\tNODE\t X \tNODE\tPIX\t0-31,64-95\t0\n"
    "mlx5_0\tPIX\tNODE\t X \tNODE\t\t\n"
    "mlx5_1\tSYS\tPIX\tNODE\t X \t\t\n"
)
"""As driver 450 printed it."""


def test_the_table():
    matrix = topology_matrix(gpu_machine(gpus=2, nics=2))
    assert matrix_text(matrix).split("\n\n")[0] == (
        "      GPU0  GPU1  NIC0  NIC1  CPU Affinity  NUMA Affinity\n"
        "GPU0  X     NODE  PIX   NODE  0-31          0\n"
        "GPU1  NODE  X     NODE  PIX   0-31          0\n"
        "NIC0  PIX   NODE  X     NODE  0-31          0\n"
        "NIC1  NODE  PIX   NODE  X     0-31          0"
    )
    assert matrix_text(matrix).endswith("NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n")
    values = json.loads(json.dumps(matrix_values(matrix)))
    assert values["distances"]["GPU0"] == {"GPU1": "NODE", "NIC0": "PIX", "NIC1": "NODE"}
    assert values["devices"][2]["name"] == "mlx5_0"


def test_what_nvidia_smi_prints():
    new = parse_nvidia_smi(NEW)
    assert new.distances["GPU0", "GPU1"] == "NV18" and new.distances["NIC1", "GPU1"] == "PIX"
    assert [(one.name, one.cpus, one.numa_node) for one in new.devices] == [
        ("", "0-31", 0),
        ("", "0-31", 0),
        ("mlx5_0", "", None),
        ("mlx5_1", "", None),
    ]
    ours = topology_matrix(gpu_machine(gpus=2, nics=2))
    assert differences(ours, new) == ()
    linked = with_nvlinks(ours, new)
    assert linked.distances["GPU1", "GPU0"] == "NV18" and linked.distances["GPU0", "NIC0"] == "PIX"
    assert differences(ours, parse_nvidia_smi(OLD)) == ("GPU0–mlx5_1: NODE here, SYS there",)
    assert parse_nvidia_smi(matrix_text(ours)).distances == ours.distances


@pytest.mark.parametrize("text", ["", "No devices were found\n", NEW.replace("PIX", "what")])
def test_what_is_no_table(text):
    with pytest.raises(ValueError, match=r"table|cells"):
        parse_nvidia_smi(text)
