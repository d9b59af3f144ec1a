"""The steps of a lab as text: goldens hold the whole of them."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from ringleader.lab.config_files import session_variables
from ringleader.lab.removal_plan import Remains, down_phase
from ringleader.lab.setup_plan import Machine, up_phases
from ringleader.lab.spec import LabSpec, from_json, to_json
from ringleader.lab.steps import script, shell_line
from ringleader.lab.virtual_network import cut_steps, network_steps, shaping

GOLDEN = Path(__file__).parent.parent / "golden" / "lab"
MACHINE = Machine(
    root="/run/ringleader/lab",
    head_names=("node7.example.org", "node7"),
    missing_names=("node7",),
    path="/opt/venv/bin:/usr/bin:/bin",
    cores=2,
)
REMAINS = Remains(
    processes=(4711, 4712),
    namespaces=("rl-lab-h1", "rl-lab-h2"),
    links=("rl-lab-1", "rl-lab-2", "rl-lab"),
    directory="/run/ringleader/lab/lab",
    in_hosts_file=True,
    netns_mount=True,
)


def _check(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"{path} differs; UPDATE_GOLDEN=1 writes it anew"


def test_golden_of_up():
    _check("up.sh", script(up_phases(LabSpec(hosts=2), MACHINE)))


def test_golden_of_up_with_latency_private_tmp_and_a_name():
    spec = LabSpec(
        name="two",
        hosts=1,
        slots=1,
        bandwidth=10**9,
        latency=0.0002,
        ssh_port=2222,
        subnet="10.214.0.0/29",
        private_tmp=True,
    )
    machine = dataclasses.replace(MACHINE, use_pam=True, missing_names=())
    _check("up_other.sh", script(up_phases(spec, machine)))


def test_golden_of_up_with_emulated_machines():
    machine = dataclasses.replace(
        MACHINE,
        python="/opt/venv/bin/python",
        qemu="/usr/bin/qemu-system-x86_64",
        busybox="/usr/bin/busybox",
        kernel="/opt/kernel/boot/vmlinuz-6.1.0-56-amd64",
    )
    spec = LabSpec(name="real", hosts=2, slots=1, kernel="/opt/kernel")
    _check("up_rdma.sh", script(up_phases(spec, machine)))
    assert from_json(to_json(spec)) == spec


def test_golden_of_down():
    _check("down.sh", script((down_phase("lab", REMAINS),)))


@pytest.mark.parametrize("name", ["up.sh", "up_other.sh", "up_rdma.sh", "down.sh"])
@pytest.mark.process
def test_what_is_printed_is_a_shell_script(name):
    subprocess.run(["sh", "-n", str(GOLDEN / name)], check=True)


def test_the_intent_is_written_before_anything_else_is_made():
    first, second, *_ = [step for phase in up_phases(LabSpec(), MACHINE) for step in phase.steps]
    assert shell_line(first) == "mkdir -p -m 700 /run/ringleader/lab/lab"
    assert "/run/ringleader/lab/lab/lab.json" in shell_line(second)


def test_nothing_left_means_nothing_to_do():
    assert not Remains()
    assert down_phase("lab", Remains()).steps == ()


def test_state_is_read_back_and_foreign_files_are_refused():
    spec = LabSpec(name="a", hosts=3, latency=0.001)
    assert from_json(to_json(spec)) == spec
    for text in (
        "",
        "{}",
        '{"format": 2}',
        '{"format": 1, "spec": {"cores": 3}}',
        '{"format": 1, "spec": 7}',
        "[]",
    ):
        with pytest.raises(ValueError, match=r".*"):
            from_json(text)


def test_no_command_gives_a_host_a_way_out_of_the_lab():
    lines = [shell_line(step) for step in network_steps(LabSpec(hosts=3))]
    assert not [line for line in lines if "route" in line or "default" in line]
    addresses = [line.split()[line.split().index("add", 1) + 1] for line in lines if " addr add " in line]
    assert addresses == ["10.213.0.254/24", "10.213.0.1/24", "10.213.0.2/24", "10.213.0.3/24"]


@pytest.mark.parametrize(("rate", "burst"), [(8 * 10**9, 2_000_000), (10**9, 250_000), (10**6, 65_536)])
def test_the_bucket_holds_two_milliseconds_but_at_least_a_few_frames(rate, burst):
    (argv,) = shaping(LabSpec(bandwidth=rate), ("tc",), "x")
    assert argv[argv.index("burst") + 1] == str(burst)


def test_cutting_touches_both_ends_of_one_cable_only():
    lines = [shell_line(step) for step in cut_steps(LabSpec(), 2)]
    assert lines == [
        "tc qdisc replace dev rl-lab-2 root handle 2: blackhole",
        "tc -n rl-lab-h2 qdisc replace dev eth0 root handle 2: blackhole",
    ]


def test_idle_ranks_yield_only_where_the_hosts_have_more_slots_than_the_machine_has_cores():
    assert "OMPI_MCA_mpi_yield_when_idle" in session_variables(LabSpec(), cores=7)
    assert "OMPI_MCA_mpi_yield_when_idle" not in session_variables(LabSpec(), cores=8)
