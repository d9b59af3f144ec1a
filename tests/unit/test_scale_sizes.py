"""Sizes of a scaling run: their hosts, what their words become, and batches that they cannot share."""

import pytest

from ringleader.bench.scale.sizes import (
    batch_faults,
    command_of,
    default_grid,
    faults_of_hosts,
    hosts_for,
    parse_baseline,
    parse_grid,
    placeholders,
    with_baseline,
)
from ringleader.errors import RequestError
from ringleader.plan.job import Host
from ringleader.scaling import Size


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
    found = faults_of_hosts(parse_grid("1x1,5x1,4x2,1x3"), FOUR, cores=1)
    assert [fault.what for fault in found] == [
        "5x1 needs 5 hosts with 1 slots or more; there are: h1:2, h2:2, h3:2, h4:2",
        "1x3 needs 1 host with 3 slots or more; there are: h1:2, h2:2, h3:2, h4:2",
    ]
    (alone,) = faults_of_hosts(parse_grid("2x1"), (), cores=1)
    assert "this machine alone" in alone.what
    (crowded,) = faults_of_hosts(parse_grid("1x1,1x3"), (), cores=2)
    assert crowded.what == "1x3 needs 3 cores, this machine has 2"
    assert not faults_of_hosts(parse_grid("1x3"), (), cores=2, oversubscribe=True)


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
    assert not faults_of_hosts(default_grid(hosts, cores), hosts, cores=cores)


# What a size's words become, and batches that cannot be shared out

GRID = parse_grid("1x1,1x2,2x4")
TWO, EIGHT = GRID[1], GRID[2]


@pytest.mark.parametrize(
    ("word", "two", "eight"),
    [
        ("{batch}", "128", "32"),
        ("--batch={batch}", "--batch=128", "--batch=32"),
        ("out-{hosts}x{ranks}.txt", "out-1x2.txt", "out-2x8.txt"),
        ("{{batch}}", "{batch}", "{batch}"),
        ("{rank} {} {{}} {other}", "{rank} {} {{}} {other}", "{rank} {} {{}} {other}"),
    ],
)
def test_words_of_a_size(word: str, two: str, eight: str) -> None:
    assert command_of(("python", word), TWO, 256) == ("python", two)
    assert command_of(("python", word), EIGHT, 256) == ("python", eight)


def test_without_a_global_batch_its_word_stays() -> None:
    assert command_of(("{batch}", "{ranks}"), EIGHT, None) == ("{batch}", "8")
    assert placeholders(("a{batch}", "{{ranks}}")) == {"batch"}


@pytest.mark.parametrize(
    ("command", "strong", "batch", "faults"),
    [
        (("{batch}",), True, 256, []),
        (("{ranks}",), True, 256, []),
        (("train",), False, None, []),
        (("train",), True, None, []),
        (("{batch}",), True, None, ["{batch} is a rank's share of --global-batch"]),
        (("{batch}",), False, 256, ["is the batch of strong scaling"]),
        (("train",), True, 256, ["has no {batch}"]),
        (("{batch}",), True, 0, ["0 samples"]),
        (("{batch}",), True, -8, ["-8 samples"]),
        (
            ("{batch}",),
            True,
            255,
            ["255 samples do not divide by the 2 ranks of 1x2", "255 samples do not divide by the 8 ranks"],
        ),
        (("train",), True, 4, ["has no {batch}", "4 samples do not divide by the 8 ranks of 2x4"]),
    ],
)
def test_batch_faults(command: tuple[str, ...], strong: bool, batch: int | None, faults: list[str]) -> None:
    found = batch_faults(command, GRID, strong=strong, global_batch=batch)
    assert len(found) == len(faults)
    for fault, text in zip(found, faults, strict=True):
        assert text in fault.what


def test_a_baseline_is_one_size() -> None:
    host = parse_baseline("1x8")
    assert with_baseline(parse_grid("2x8,4x8"), host)[0] == host
    assert with_baseline(parse_grid("1x8,2x8"), host) == parse_grid("1x8,2x8")
    for text, said in (("1x8,2x8", "is 2 sizes"), ("eight", "is not a size"), ("0x8", "has no rank")):
        with pytest.raises(RequestError, match=said) as raised:
            parse_baseline(text)
        assert raised.value.faults[0].where == "--baseline"
