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


def test_sizes_keep_their_order_and_the_baseline_is_always_among_them() -> None:
    assert [str(one) for one in parse_grid(" 4x2, 1x1,2×2")] == ["4x2", "1x1", "2x2"]
    assert [str(one) for one in with_baseline(parse_grid("2x2,4x2"))] == ["1x1", "2x2", "4x2"]
    assert [str(one) for one in with_baseline(parse_grid("2x2,1x1"))] == ["2x2", "1x1"]
    host = parse_baseline("1x8")
    assert with_baseline(parse_grid("2x8,4x8"), host)[0] == host
    assert with_baseline(parse_grid("1x8,2x8"), host) == parse_grid("1x8,2x8")
    for text, said in (("1x8,2x8", "is 2 sizes"), ("eight", "is not a size"), ("0x8", "has no rank")):
        with pytest.raises(RequestError, match=said) as raised:
            parse_baseline(text)
        assert raised.value.faults[0].where == "--baseline"


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        parse_grid("1x1,two,0x4,,1x1,1x-2")
    said = "'two' is not a size|0x4 has no rank|an empty size|1x1 is there twice|'1x-2' is not a size"
    assert [fault.what for fault in caught.value.faults] == said.split("|")
    assert all(fault.where == "--grid" and fault.hint for fault in caught.value.faults)


def test_hosts_get_just_the_slots_of_the_size_and_too_small_ones_are_passed_over() -> None:
    hosts = (Host(name="small", slots=1), Host(name="a", slots=4), Host(name="b", slots=None))
    assert hosts_for(size("2x3"), hosts) == (Host(name="a", slots=3), Host(name="b", slots=3))
    assert hosts_for(size("3x4"), hosts) is None
    assert hosts_for(size("3x4"), hosts, oversubscribe=True) is not None
    assert hosts_for(size("1x64"), ()) == () and hosts_for(size("2x1"), ()) is None


def test_sizes_that_do_not_fit_are_all_named() -> None:
    def faults(grid: str, hosts: tuple[Host, ...], cores: int, **more: bool) -> list[str]:
        return [fault.what for fault in faults_of_hosts(parse_grid(grid), hosts, cores=cores, **more)]

    assert faults("1x1,5x1,4x2,1x3", FOUR, 1) == [
        "5x1 needs 5 hosts with 1 slots or more; there are: h1:2, h2:2, h3:2, h4:2",
        "1x3 needs 1 host with 3 slots or more; there are: h1:2, h2:2, h3:2, h4:2",
    ]
    assert "this machine alone" in faults("2x1", (), 1)[0]
    assert faults("1x1,1x3", (), 2) == ["1x3 needs 3 cores, this machine has 2"]
    assert not faults("1x3", (), 2, oversubscribe=True)


@pytest.mark.parametrize(
    ("hosts", "cores", "expected"),
    [
        ((), 1, ["1x1"]),
        ((), 6, ["1x1", "1x2", "1x4", "1x6"]),
        (FOUR, 64, ["1x1", "1x2", "2x2", "4x2"]),
        ((Host(name="a"), Host(name="b"), Host(name="c")), 2, ["1x1", "1x2", "2x2", "3x2"]),
    ],
)
def test_default_sizes_double(hosts: tuple[Host, ...], cores: int, expected: list[str]) -> None:
    assert [str(one) for one in default_grid(hosts, cores)] == expected


# What a size's words become, and batches that cannot be shared out

GRID = parse_grid("1x1,1x2,2x4")
TWO, EIGHT = GRID[1], GRID[2]


def test_words_of_a_size() -> None:
    words = ("{batch}", "out-{hosts}x{ranks}.txt", "{{batch}}", "{rank} {} {{}} {other}")
    assert command_of(words, TWO, 256) == ("128", "out-1x2.txt", "{batch}", words[3])
    assert command_of(words, EIGHT, 256) == ("32", "out-2x8.txt", "{batch}", words[3])
    assert command_of(("{batch}", "{ranks}"), EIGHT, None) == ("{batch}", "8"), "without a global batch"
    assert placeholders(("a{batch}", "{{ranks}}")) == {"batch"}


@pytest.mark.parametrize(
    ("word", "batch", "strong", "faults"),
    [
        ("{batch}", 256, True, ""),
        ("{ranks}", 256, True, ""),
        ("train", None, True, ""),
        ("{batch}", None, True, "{batch} is a rank's share of --global-batch"),
        ("{batch}", 256, False, "is the batch of strong scaling"),
        ("{batch}", 0, True, "0 samples"),
        ("{batch}", 255, True, "255 samples do not divide by the 2 ranks of 1x2|by the 8 ranks"),
        ("train", 4, True, "has no {batch}|4 samples do not divide by the 8 ranks of 2x4"),
    ],
)
def test_batch_faults(word: str, batch: int | None, strong: bool, faults: str) -> None:
    found = batch_faults((word,), GRID, strong=strong, global_batch=batch)
    texts = faults.split("|") if faults else []
    assert len(found) == len(texts) and all(a in b.what for a, b in zip(texts, found, strict=True)), found
