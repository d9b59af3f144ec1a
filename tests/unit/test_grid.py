"""Sizes of a scaling run."""

from __future__ import annotations

import pytest

from ringleader.bench.grid import Size, check_grid, default_grid, hosts_for, parse_grid, with_baseline
from ringleader.errors import RequestError
from ringleader.plan.job import Host


def size(text: str) -> Size:
    return parse_grid(text)[0]


FOUR = tuple(Host(name=f"h{n}", slots=2) for n in range(1, 5))


def test_sizes_keep_their_order() -> None:
    assert [str(one) for one in parse_grid(" 4x2, 1x1,2×2")] == ["4x2", "1x1", "2x2"]
    assert size("4x2").ranks == 8


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        parse_grid("1x1,two,0x4,,1x1,1x-2")
    assert [fault.what for fault in caught.value.faults] == [
        "'two' is not a size",
        "0x4 has no rank",
        "an empty size",
        "1x1 is there twice",
        "'1x-2' is not a size",
    ]
    assert all(fault.where == "--grid" and fault.hint for fault in caught.value.faults)


def test_one_rank_is_always_among_them() -> None:
    assert [str(one) for one in with_baseline(parse_grid("2x2,4x2"))] == ["1x1", "2x2", "4x2"]
    assert [str(one) for one in with_baseline(parse_grid("2x2,1x1"))] == ["2x2", "1x1"]


def test_hosts_get_just_the_slots_of_the_size() -> None:
    assert hosts_for(size("2x1"), FOUR) == (Host(name="h1", slots=1), Host(name="h2", slots=1))


def test_hosts_that_are_too_small_are_passed_over() -> None:
    hosts = (Host(name="small", slots=1), Host(name="a", slots=4), Host(name="b", slots=None))
    assert hosts_for(size("2x4"), hosts) == (Host(name="a", slots=4), Host(name="b", slots=4))
    assert hosts_for(size("3x4"), hosts) is None
    assert hosts_for(size("3x4"), hosts, oversubscribe=True) is not None


def test_this_machine_is_one_host() -> None:
    assert hosts_for(size("1x64"), ()) == ()
    assert hosts_for(size("2x1"), ()) is None


def test_sizes_that_do_not_fit_are_all_named() -> None:
    with pytest.raises(RequestError) as caught:
        check_grid(parse_grid("1x1,5x1,4x2,1x3"), FOUR)
    assert [fault.what for fault in caught.value.faults] == [
        "5x1 needs 5 hosts with 1 slots or more; there are: h1:2, h2:2, h3:2, h4:2",
        "1x3 needs 1 host with 3 slots or more; there are: h1:2, h2:2, h3:2, h4:2",
    ]
    with pytest.raises(RequestError, match="this machine alone"):
        check_grid(parse_grid("2x1"), ())


@pytest.mark.parametrize(
    ("hosts", "cores", "expected"),
    [
        ((), 1, ["1x1"]),
        ((), 2, ["1x1", "1x2"]),
        ((), 6, ["1x1", "1x2", "1x4", "1x6"]),
        (FOUR, 64, ["1x1", "1x2", "2x2", "4x2"]),
        ((Host(name="a"), Host(name="b"), Host(name="c")), 2, ["1x1", "1x2", "2x2", "3x2"]),
    ],
)
def test_default_sizes_double(hosts: tuple[Host, ...], cores: int, expected: list[str]) -> None:
    assert [str(one) for one in default_grid(hosts, cores)] == expected
    check_grid(default_grid(hosts, cores), hosts)
