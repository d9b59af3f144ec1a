"""The steps of a lab as text: goldens hold the whole of them. Links: which end is limited to what."""

import dataclasses
import os
import subprocess
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.cli import lab
from ringleader.cli.lab import command
from ringleader.cli.run.command import find_lab
from ringleader.errors import Fault, LabError, RequestError
from ringleader.lab import saved_state
from ringleader.lab.host_files import Machine, rootfs_boot_script
from ringleader.lab.network import SlowLink, cut_steps, network_steps, shaping, slow_steps
from ringleader.lab.plan import Remains, down_phase, up_phases
from ringleader.lab.rootfs import Bind, Rootfs
from ringleader.lab.spec import (
    LabSpec,
    check,
    check_name,
    format_rate,
    free_subnet,
    from_json,
    parse_latency,
    parse_rate,
    to_json,
)
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


@pytest.mark.process
def test_odd_names_are_quoted_in_the_boot_script():
    odd = "/a'b c;$(d)"
    tree = Rootfs(path=odd, binds=(Bind(source=odd, target=odd),))
    text = rootfs_boot_script(LabSpec(), tree, 1, "/run/ringleader/lab/lab")
    done = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "mount -n --bind '/a'\"'\"'b c;$(d)' lower" in text


def test_state_is_read_back():
    for spec in (
        LabSpec(name="a", hosts=3, latency=0.001),
        LabSpec(kernel="/opt/kernel"),
        LabSpec(tree=TREE),
    ):
        assert from_json(to_json(spec)) == spec
        assert from_json('{"format": 1, "spec": {"hosts": 4}}') == LabSpec()


def test_no_command_gives_a_host_a_way_out_of_the_lab():
    lines = [shell_line(step) for step in network_steps(LabSpec(hosts=3))]
    assert not [line for line in lines if "route" in line or "default" in line]
    (argv,) = shaping(LabSpec(bandwidth=10**6), ("tc",), "x")
    assert argv[argv.index("burst") + 1] == "65536", "a few frames at least"
    assert down_phase("lab", Remains()).steps == ()


def test_foreign_state_is_refused():
    for text in (
        *("", "{}", "[]", '{"format": 2}', '{"format": 1, "spec": {"cores": 3}}', '{"format": 1, "spec": 7}'),
        '{"format": 1, "spec": {"tree": {"path": "/x"}}}',
        '{"format": 1, "spec": {"tree": "/x"}}',
    ):
        with pytest.raises(ValueError, match=r".*"):
            from_json(text)


SWITCH, HOST = "tc qdisc replace dev rl-lab-3", "tc -n rl-lab-h3 qdisc replace dev eth0"
FRESH, ONE_GBIT = "root handle 3: pfifo", "root handle 1: tbf rate 1000000000bit burst 250000 limit 2000000"
LAB = "root handle 1: tbf rate 8000000000bit burst 2000000 limit 16000000"


@pytest.mark.parametrize(
    ("limit", "latency", "expected"),
    [
        (SlowLink(into=10**9), 0, [f"{SWITCH} {FRESH}", f"{SWITCH} {ONE_GBIT}"]),
        (SlowLink(into=10 **9, delay=0.005), 0, [* (f"{SWITCH} {FRESH}", f"{SWITCH} {ONE_GBIT}"),
         f"{SWITCH} parent 1:1 handle 10: netem delay 5000us limit 1000"]),
        (SlowLink(delay=0.005), 0, [f"{end} {line}" for end in (SWITCH, HOST) for line in (FRESH, LAB,
         "parent 1:1 handle 10: netem delay 5000us limit 5000")]),
        (None, 0.0002, [f"{end} {line}" for end in (SWITCH, HOST) for line in (FRESH, LAB,
         "parent 1:1 handle 10: netem delay 200us limit 1000")]),
    ],
)  # fmt: skip
def test_slow(limit, latency, expected):
    steps = slow_steps(LabSpec(latency=latency), 3, limit)
    assert [shell_line(step) for step in steps] == expected


def test_an_unknown_host_is_told_with_what_else_is_wrong(monkeypatch):
    monkeypatch.setattr(saved_state, "current", lambda name: saved_state.lab_of(LabSpec(hosts=2)))
    with pytest.raises(RequestError) as caught:
        lab.slow(lab.SlowOptions(host="nohost"))
    assert [one.where for one in caught.value.faults] == ["ringleader lab slow", "HOST"]


@given(st.integers(min_value=1, max_value=10**12))
def test_a_rate_that_was_written_is_read_back(rate):
    assert parse_rate(format_rate(rate)) == rate


@pytest.fixture
def wheres(call, monkeypatch):
    """Returns a function: words of ``ringleader lab`` → the options that are at fault, and what is said."""
    monkeypatch.setattr(saved_state, "current", lambda name: saved_state.lab_of(LabSpec(hosts=2)))

    def run(*words):
        code, out, err = call("lab", *words)
        assert (code, out) == (2, "") and "Traceback" not in err
        lines = [line.removeprefix("ringleader: ") for line in err.splitlines() if "ringleader: " in line]
        return sorted(line.partition(": ")[0] for line in lines), err

    return run


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("--hosts 0", "use 1 to 250"),
        ("--slots 2000", "2000 slots"),
        ("--ssh-port 65536", "65536 is not a port number"),
        ("--bandwidth 2000tbit", "use 1mbit to 1tbit"),
        ("--bandwidth fast", "for example 8gbit or 500mbit"),
        ("--latency 11s", "11s is too long"),
        ("--latency soon", "for example 200us or 1ms"),
        ("--subnet 10.0.0.1/24", "host bits"),
        ("--subnet fd00::/64", ""),
        ("--subnet 10.213.0.0/30", "no room for 4 hosts"),
        ("--subnet 8.8.8.0/24", "not a private network"),
        ("--lab-name ../x", "not a name"),
        ("--kernel /k", "add --rdma, or leave it out"),
        ("--mount /tmp:/x --ssh-port 34", "it goes with --root"),
    ],
)
def test_each_fault_of_up_names_its_option(wheres, words, what):
    found, err = wheres("up", "--ssh-port", "34", "--subnet", "10.213.0.0/24", *words.split())
    assert found == words.split()[:1] and what in err


def test_all_faults_of_up_are_reported_at_once(wheres):
    options = ("--lab-name", "--hosts", "--slots", "--bandwidth", "--latency", "--ssh-port", "--subnet")
    words = ("Lab!", "0", "0", "fast", "soon", "0", "8.8.8.0/24")
    both = ("--rdma", "--private-tmp", "--root", "/nowhere/at/all", "--mount", "x")
    found, _ = wheres("up", *(word for pair in zip(options, words, strict=True) for word in pair), *both)
    expected = (*options, "--mount", "--root", "--rdma and --root", "--rdma and --private-tmp")
    assert found == sorted(expected)


def test_all_faults_of_slow_are_reported_at_once(wheres):
    for words, expected in (
        ("", ["ringleader lab slow"]),
        ("--off --into fast", ["--into", "--off"]),
        ("--off --into 1gbit", ["--off"]),
        ("--delay 11s", ["--delay"]),
        ("--into fast --out-of 1bit --delay 1h", ["--delay", "--into", "--out-of"]),
    ):
        assert wheres("slow", "h1", *words.split())[0] == expected


@pytest.mark.parametrize("words", ["up", "down", "status"])
def test_a_lab_is_named_by_an_option_or_a_variable(words, monkeypatch):
    def name(*argv):
        found = command.get_command(click.Context(command), words)
        with found.make_context(words, list(argv)) as ctx:
            return ctx.params["lab_name"]

    monkeypatch.delenv("RINGLEADER_LAB", raising=False)
    assert name() == ("lab" if words == "up" else None)
    monkeypatch.setenv("RINGLEADER_LAB", "slow")
    assert name() == "slow"
    assert name("--name", "big") == name("--lab-name", "big") == "big"


def test_the_first_free_subnet_is_taken():
    assert free_subnet([]) == "10.213.0.0/24"
    assert free_subnet(["10.213.0.254/24", "10.213.1.7/32", "192.168.0.0/16"]) == "10.213.2.0/24"
    with pytest.raises(RequestError):
        free_subnet(["10.0.0.0/8"])
    for name in ("", "1lab", "lab-1", "a/b", "LAB", "toolonglab"):
        with pytest.raises(RequestError):
            check_name(name)  # other names than ours never reach a path


def test_what_a_program_asks_for_has_the_same_bounds(monkeypatch):
    with pytest.raises(RequestError) as caught:
        check(LabSpec(name="No", hosts=0, ssh_port=0), Fault(where="--ssh-port", what="in use"))
    wheres = [one.where for one in caught.value.faults]
    assert wheres == ["--lab-name", "--hosts", "--ssh-port", "--ssh-port"]
    assert check(LabSpec()) == LabSpec()
    monkeypatch.setenv("RINGLEADER_LAB", "other")
    for name, said in (("absent", "absent"), (None, "other")):
        with pytest.raises(LabError, match=said):
            find_lab(name)


def test_rates_are_decimal_bits_per_second_and_latencies_have_a_unit():
    rates = {"1gbit": 10**9, "25Gbit/s": 25 * 10**9, "1.5 Gbps": 15 * 10**8, "100kbit": 10**5, "12bit": 12}
    assert {text: parse_rate(text) for text in rates} == rates
    for text in ("fast", "", "8", "8g", "8GB", "8 gigabit", "-1gbit", "8gbit/h", "1e3mbit"):
        with pytest.raises(ValueError, match="is not a rate"):
            parse_rate(text)
    latencies = {"0": 0.0, "200us": 2e-4, "1ms": 1e-3, "1.5 ms": 1.5e-3, "2s": 2.0}
    assert {text: parse_latency(text) for text in latencies} == pytest.approx(latencies)
    for text in ("1", "soon", "-1ms", "1m"):
        with pytest.raises(ValueError, match="is not a time"):
            parse_latency(text)


def test_names_and_addresses():
    for spec, last in ((LabSpec(hosts=250), "h250"), (LabSpec(name="eightchr", hosts=250), "eightchr-h250")):
        assert spec.host_names[-1] == last
        assert len({spec.address(number) for number in range(1, 251)} | {spec.head_address}) == 251
        links = [spec.bridge, *(spec.link(number) for number in range(1, 251))]
        assert max(map(len, links)) <= 15, "the kernel's limit"
    other = LabSpec(name="two", hosts=2, subnet="10.214.0.0/29")
    assert (other.head_address, other.prefix_length) == ("10.214.0.6", 29)


def test_nothing_left_means_nothing_to_do():
    assert not Remains()
    assert down_phase("lab", Remains()).steps == ()


def test_cutting_touches_both_ends_of_one_cable_only():
    lines = [shell_line(step) for step in cut_steps(LabSpec(), 2)]
    assert lines == [
        "tc qdisc replace dev rl-lab-2 root handle 2: blackhole",
        "tc -n rl-lab-h2 qdisc replace dev eth0 root handle 2: blackhole",
    ]


def test_words_of_slow_become_a_limit(call, monkeypatch):
    monkeypatch.setattr(saved_state, "current", lambda name: saved_state.lab_of(LabSpec(hosts=2)))
    limits = ("--into", "100mbit", "--out-of", "1.5gbit", "--delay", "2ms")
    _, out, _ = call("lab", "slow", "h1", *limits, "--dry-run")
    assert "dev rl-lab-1 root handle 1: tbf rate 100000000bit" in out and out.count("delay 2000us") == 2
    assert "dev eth0 root handle 1: tbf rate 1500000000bit" in out
