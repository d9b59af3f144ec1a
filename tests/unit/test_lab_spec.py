"""What may be asked of a lab, and what is refused, all at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.errors import Fault, RequestError
from ringleader.lab.spec import (
    LabSpec,
    check_name,
    format_rate,
    free_subnet,
    parse_latency,
    parse_rate,
    spec_of,
)

GOOD = {
    "name": "lab",
    "hosts": 4,
    "slots": 2,
    "bandwidth": "8gbit",
    "latency": "0",
    "ssh_port": 33,
    "subnet": "10.213.0.0/24",
    "private_tmp": False,
}


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


def test_all_faults_are_reported_at_once():
    bad = {
        "name": "Lab!",
        "hosts": 0,
        "slots": 0,
        "bandwidth": "fast",
        "latency": "soon",
        "ssh_port": 0,
        "subnet": "8.8.8.0/24",
        "private_tmp": False,
    }
    with pytest.raises(RequestError) as caught:
        spec_of(**bad, further=[Fault(where="--ssh-port", what="in use")])
    assert [fault.where for fault in caught.value.faults] == [
        *("--name", "--hosts", "--slots", "--ssh-port", "--bandwidth", "--latency", "--subnet", "--ssh-port")
    ]
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        ({"hosts": 300}, "--hosts", "300 hosts"),
        ({"slots": 2000}, "--slots", "2000 slots"),
        ({"ssh_port": 65536}, "--ssh-port", "not a port number"),
        ({"bandwidth": "0gbit"}, "--bandwidth", "out of range"),
        ({"bandwidth": "2000tbit"}, "--bandwidth", "out of range"),
        ({"latency": "11s"}, "--latency", "too long"),
        ({"subnet": "10.0.0.1/24"}, "--subnet", "host bits"),
        ({"subnet": "fd00::/64"}, "--subnet", ""),
        ({"subnet": "10.213.0.0/30"}, "--subnet", "no room"),
        ({"name": "ninechars"}, "--name", "not a name"),
        ({"name": "../x"}, "--name", "not a name"),
    ],
)
def test_each_fault_names_its_option(change, where, what):
    with pytest.raises(RequestError) as caught:
        spec_of(**{**GOOD, **change})
    (fault,) = caught.value.faults
    assert fault.where == where and what in fault.what


def test_a_good_request_becomes_a_spec():
    assert spec_of(**GOOD) == LabSpec()


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
