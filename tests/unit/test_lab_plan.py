"""The steps of a lab as text: goldens hold the whole of them. Links: which end is limited to what."""

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from ringleader.cli import lab
from ringleader.errors import RequestError
from ringleader.lab import saved_state
from ringleader.lab.host_files import Machine, rootfs_boot_script, session_variables
from ringleader.lab.network import SlowLink, cut_steps, network_steps, shaping, slow_steps
from ringleader.lab.plan import Remains, down_phase, up_phases
from ringleader.lab.rootfs import Bind, Rootfs
from ringleader.lab.spec import LabSpec, from_json, to_json
from ringleader.lab.steps import script, shell_line

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


TREE = Rootfs(
    path="/srv/an image's tree",
    binds=(
        Bind(source="/home/me/my code", target="/code", read_only=True),
        Bind(source="/data", target="/data"),
    ),
)
ROOTED = dataclasses.replace(
    MACHINE,
    head_names=("node7",),
    missing_names=(),
    variables=(("LANG", "C.UTF-8"), ("PATH", "never this one")),
)
EMULATING = dataclasses.replace(
    MACHINE,
    python="/opt/venv/bin/python",
    qemu="/usr/bin/qemu-system-x86_64",
    busybox="/usr/bin/busybox",
    kernel="/opt/kernel/boot/vmlinuz-6.1.0-56-amd64",
)
OTHER = LabSpec(
    name="two",
    hosts=1,
    slots=1,
    bandwidth=10**9,
    latency=0.0002,
    ssh_port=2222,
    subnet="10.214.0.0/29",
    private_tmp=True,
)
GOLDENS = {
    "up.sh": up_phases(LabSpec(hosts=2), MACHINE),
    "up_other.sh": up_phases(OTHER, dataclasses.replace(MACHINE, use_pam=True, missing_names=())),
    "up_rdma.sh": up_phases(LabSpec(name="real", hosts=2, slots=1, kernel="/opt/kernel"), EMULATING),
    "up_tree.sh": up_phases(LabSpec(hosts=2, tree=TREE), ROOTED),
    "down.sh": (down_phase("lab", REMAINS),),
}


@pytest.mark.parametrize("name", GOLDENS)
@pytest.mark.process
def test_golden(name):
    path, text = GOLDEN / name, script(GOLDENS[name])
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"{path} differs; UPDATE_GOLDEN=1 writes it anew"
    subprocess.run(["sh", "-n", str(path)], check=True)


def test_sessions_have_the_trees_path_and_variables_once_each():
    (line,) = {line for line in script(GOLDENS["up_tree.sh"]).splitlines() if line.startswith("SetEnv ")}
    assert line.count("PATH=") == 1 and '"PATH=/opt/venv/bin:/usr/bin:/bin"' in line
    assert '"LANG=C.UTF-8"' in line and "TMPDIR" not in line


@pytest.mark.process
def test_odd_names_are_quoted_in_the_boot_script():
    odd = "/a'b c;$(d)"
    tree = Rootfs(path=odd, binds=(Bind(source=odd, target=odd),))
    text = rootfs_boot_script(LabSpec(), tree, 1, "/run/ringleader/lab/lab")
    done = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "mount -n --bind '/a'\"'\"'b c;$(d)' lower" in text


def test_the_intent_is_written_before_anything_else_is_made():
    first, second, *_ = [step for phase in up_phases(LabSpec(), MACHINE) for step in phase.steps]
    assert shell_line(first) == "mkdir -p -m 700 /run/ringleader/lab/lab"
    assert "/run/ringleader/lab/lab/lab.json" in shell_line(second)


def test_nothing_left_means_nothing_to_do():
    assert not Remains()
    assert down_phase("lab", Remains()).steps == ()


@pytest.mark.parametrize(
    "spec", [LabSpec(name="a", hosts=3, latency=0.001), LabSpec(kernel="/opt/kernel"), LabSpec(tree=TREE)]
)
def test_state_is_read_back(spec):
    assert from_json(to_json(spec)) == spec


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", '{"format": 2}', '{"format": 1, "spec": {"cores": 3}}', '{"format": 1, "spec": 7}'),
        '{"format": 1, "spec": {"tree": {"path": "/x"}}}',
        '{"format": 1, "spec": {"tree": {"path": "/x", "binds": [{"source": "/y"}]}}}',
        '{"format": 1, "spec": {"tree": "/x"}}',
    ],
)
def test_foreign_state_is_refused(text):
    with pytest.raises(ValueError, match=r".*"):
        from_json(text)


def test_state_that_says_nothing_of_a_tree_is_read():
    assert from_json('{"format": 1, "spec": {"hosts": 4}}') == LabSpec()


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


@pytest.mark.parametrize(
    ("spec", "cores", "expected"),
    [
        (LabSpec(), 7, {"TMPDIR": "/var/tmp", "OMPI_MCA_mpi_yield_when_idle": "1"}),
        (LabSpec(), 8, {"TMPDIR": "/var/tmp"}),
        (LabSpec(tree=TREE), 8, {}),
        (LabSpec(private_tmp=True), 8, {}),
        # One core carries a rank, UCX's progress and the kernel's verbs.
        (LabSpec(hosts=1, slots=1, kernel="/opt/kernel"), 8, {"OMPI_MCA_mpi_yield_when_idle": "1"}),
    ],
)
def test_variables_of_sessions(spec, cores, expected):
    assert session_variables(spec, cores=cores) == {"RINGLEADER_LAB": "lab", **expected}


SWITCH, HOST = "tc qdisc replace dev rl-lab-3", "tc -n rl-lab-h3 qdisc replace dev eth0"
FRESH, ONE_GBIT = "root handle 3: pfifo", "root handle 1: tbf rate 1000000000bit burst 250000 limit 2000000"
LAB = "root handle 1: tbf rate 8000000000bit burst 2000000 limit 16000000"


@pytest.mark.parametrize(
    ("limit", "latency", "expected"),
    [
        (SlowLink(into=10**9), 0, [f"{SWITCH} {FRESH}", f"{SWITCH} {ONE_GBIT}"]),
        (SlowLink(out_of=10**9), 0, [f"{HOST} {FRESH}", f"{HOST} {ONE_GBIT}"]),
        (SlowLink(into=10 **9, delay=0.005), 0, [* (f"{SWITCH} {FRESH}", f"{SWITCH} {ONE_GBIT}"),
         f"{SWITCH} parent 1:1 handle 10: netem delay 5000us limit 1000"]),
        (SlowLink(delay=0.005), 0, [f"{end} {line}" for end in (SWITCH, HOST) for line in (FRESH, LAB,
         "parent 1:1 handle 10: netem delay 5000us limit 5000")]),
        (None, 0, [f"{end} {line}" for end in (SWITCH, HOST) for line in (FRESH, LAB)]),
        (None, 0.0002, [f"{end} {line}" for end in (SWITCH, HOST) for line in (FRESH, LAB,
         "parent 1:1 handle 10: netem delay 200us limit 1000")]),
    ],
    ids=["into", "out-of", "into, delayed", "both ways delayed", "lifted", "lifted to the lab's delay"],
)  # fmt: skip
def test_slow(limit, latency, expected):
    steps = slow_steps(LabSpec(latency=latency), 3, limit)
    assert [shell_line(step) for step in steps] == expected


def test_an_unknown_host_is_told_with_what_else_is_wrong(monkeypatch):
    monkeypatch.setattr(saved_state, "current", lambda name: saved_state.lab_of(LabSpec(hosts=2)))
    with pytest.raises(RequestError) as caught:
        lab.slow(lab.SlowOptions(host="nohost"))
    assert [one.where for one in caught.value.faults] == ["ringleader lab slow", "HOST"]
