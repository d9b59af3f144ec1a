"""What may be asked of a lab, by words and by options, and what is refused, all at once."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.cli.lab import command
from ringleader.cli.run.command import find_lab
from ringleader.errors import Fault, LabError, RequestError
from ringleader.lab import saved_state
from ringleader.lab.spec import (
    LabSpec,
    check,
    check_name,
    format_rate,
    free_subnet,
    parse_latency,
    parse_rate,
)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("8gbit", 8 * 10**9),
        ("1gbit", 10**9),
        ("500mbit", 500 * 10**6),
        ("25Gbit/s", 25 * 10**9),
        ("1.5 Gbps", 1_500_000_000),
        ("100kbit", 100_000),
        ("12345678bit", 12_345_678),
    ],
)
def test_rates_are_decimal_bits_per_second(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["fast", "", "8", "8g", "8GB", "8 gigabit", "-1gbit", "8gbit/h", "1e3mbit"])
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(ValueError, match="is not a rate"):
        parse_rate(text)


@given(st.integers(min_value=1, max_value=10**12))
def test_a_rate_that_was_written_is_read_back(rate):
    assert parse_rate(format_rate(rate)) == rate


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0.0), ("200us", 2e-4), ("1ms", 1e-3), ("1.5 ms", 1.5e-3), ("2s", 2.0)]
)
def test_latencies_have_a_unit(text, seconds):
    assert parse_latency(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["1", "soon", "-1ms", "1m"])
def test_what_is_no_latency_is_refused(text):
    with pytest.raises(ValueError, match="is not a time"):
        parse_latency(text)


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
        ("--hosts 300", "300 hosts"),
        ("--hosts 0", "use 1 to 250"),
        ("--slots 2000", "2000 slots"),
        ("--ssh-port 65536", "65536 is not a port number"),
        ("--ssh-port 0", "use 1 to 65535"),
        ("--bandwidth 0gbit", "0gbit is out of range"),
        ("--bandwidth 2000tbit", "use 1mbit to 1tbit"),
        ("--bandwidth fast", "for example 8gbit or 500mbit"),
        ("--latency 11s", "11s is too long"),
        ("--latency soon", "for example 200us or 1ms"),
        ("--subnet 10.0.0.1/24", "host bits"),
        ("--subnet fd00::/64", ""),
        ("--subnet 10.213.0.0/30", "no room for 4 hosts"),
        ("--subnet 8.8.8.0/24", "not a private network"),
        ("--lab-name ninechars", "not a name"),
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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", ["ringleader lab slow"]),
        ("--off --into 1gbit", ["--off"]),
        ("--off --into fast", ["--into", "--off"]),
        ("--into fast --out-of 1bit --delay 1h", ["--delay", "--into", "--out-of"]),
        ("--delay 11s", ["--delay"]),
    ],
)
def test_all_faults_of_slow_are_reported_at_once(wheres, words, expected):
    assert wheres("slow", "h1", *words.split())[0] == expected


def test_words_of_slow_become_a_limit(call, monkeypatch):
    monkeypatch.setattr(saved_state, "current", lambda name: saved_state.lab_of(LabSpec(hosts=2)))
    limits = ("--into", "100mbit", "--out-of", "1.5gbit", "--delay", "2ms")
    _, out, _ = call("lab", "slow", "h1", *limits, "--dry-run")
    assert "dev rl-lab-1 root handle 1: tbf rate 100000000bit" in out and out.count("delay 2000us") == 2
    assert "dev eth0 root handle 1: tbf rate 1500000000bit" in out


def test_what_a_program_asks_for_has_the_same_bounds():
    fault = Fault(where="--ssh-port", what="in use")
    with pytest.raises(RequestError) as caught:
        check(LabSpec(name="No", hosts=0, slots=0, ssh_port=0, subnet="8.8.8.0/24"), fault)
    assert [one.where for one in caught.value.faults] == [
        *("--lab-name", "--hosts", "--slots", "--ssh-port", "--subnet", "--ssh-port")
    ]
    assert check(LabSpec()) == LabSpec()


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


def test_a_job_looks_for_the_lab_of_that_name(monkeypatch):
    monkeypatch.setenv("RINGLEADER_LAB", "other")
    with pytest.raises(LabError, match="absent"):
        find_lab("absent")
    with pytest.raises(LabError, match="other"):
        find_lab(None)


def test_names_and_addresses_of_the_default_lab_and_of_another():
    spec = LabSpec(hosts=2)
    assert spec.host_names == ("h1", "h2")
    assert [spec.address(1), spec.address(2), spec.head_address] == [
        "10.213.0.1",
        "10.213.0.2",
        "10.213.0.254",
    ]
    other = LabSpec(name="two", hosts=2, subnet="10.214.0.0/29")
    assert other.host_names == ("two-h1", "two-h2")
    assert (other.head_address, other.prefix_length) == ("10.214.0.6", 29)


def test_every_link_name_fits_into_the_kernels_15_characters():
    spec = LabSpec(name="eightchr", hosts=250)
    assert max(len(spec.link(number)) for number in range(1, 251)) <= 15
    assert len(spec.bridge) <= 15


def test_the_largest_lab_has_distinct_addresses():
    spec = LabSpec(hosts=250)
    addresses = {spec.address(number) for number in range(1, 251)} | {spec.head_address}
    assert len(addresses) == 251


def test_the_first_free_subnet_is_taken():
    assert free_subnet([]) == "10.213.0.0/24"
    assert free_subnet(["10.213.0.254/24", "10.213.1.7/32", "192.168.0.0/16"]) == "10.213.2.0/24"
    with pytest.raises(RequestError):
        free_subnet(["10.0.0.0/8"])


@pytest.mark.parametrize("name", ["", "1lab", "lab-1", "a/b", "LAB", "toolonglab"])
def test_other_names_than_ours_never_reach_a_path(name):
    with pytest.raises(RequestError):
        check_name(name)
