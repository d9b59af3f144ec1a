"""Who is named from a matrix of rates: a host and its direction, a pair, a trunk; of equal links nobody."""

import random
from itertools import chain, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringleader.bench.pair_rounds import first_rounds, second_rounds
from ringleader.fabric.active.link_isolation import Direction, isolate, suspects_of
from ringleader.fabric.active.link_results import link_results
from ringleader.fabric.check_result import Verdict

FULL, QUARTER = 400e6, 100e6


def matrix(hosts, *, slow=(), rate=QUARTER, noise=0.0, seed=1):
    """All pairs of h1 … hN at FULL; ``slow`` pairs (or a function of source and target) at ``rate``."""
    draw = random.Random(seed)
    slow_pair = slow if callable(slow) else lambda source, target: (source, target) in slow
    names = [f"h{number}" for number in range(1, hosts + 1)]
    return {
        (s, d): (rate if slow_pair(s, d) else FULL) * draw.uniform(1 - noise, 1 + noise)
        for s, d in permutations(names, 2)
    }


def named(rates):
    return {(one.host, str(one.direction)) for one in isolate(rates).hosts}


def verdicts(rates):
    return {(one.id, one.subject): one.verdict for one in link_results(rates) if one.subject}


@pytest.mark.parametrize("hosts", [3, 5, 16])
@pytest.mark.parametrize("noise", [0.0, 0.15])
@pytest.mark.parametrize("directions", [{"into"}, {"out of"}, {"into", "out of"}, set()])
def test_one_slow_host_and_its_direction_are_named(hosts, noise, directions):
    into, out_of = "into" in directions, "out of" in directions
    rates = matrix(hosts, slow=lambda s, d: (into and d == "h3") or (out_of and s == "h3"), noise=noise)
    found = isolate(rates)
    assert named(rates) == {("h3", word) for word in directions}
    assert not found.pairs and not found.trunks and not found.split
    assert verdicts(rates) == {("active.host", f"{word} h3"): Verdict.FAIL for word in directions}


def test_what_is_said_of_a_slow_host():
    rates = matrix(4, slow=lambda s, d: d == "h3")
    (one,) = (one for one in link_results(rates) if one.verdict is Verdict.FAIL)
    assert one.seen == (
        "h3 receives 100 Mbit/s from h1, h2, h4, which send 400 Mbit/s to others; "
        "out of h3 it is up to 400 Mbit/s"
    )
    assert one.expected == "at least 280 Mbit/s: 70% of 400 Mbit/s, the median of the hosts' best rates"
    assert (one.id, one.hosts) == ("active.host", ("h3",)) and one.remedy


def test_hosts_that_are_named():
    third = matrix(4, slow=lambda s, d: d == "h3", rate=0.6 * FULL)
    assert verdicts(third) == {("active.host", "into h3"): Verdict.WARN}
    two = matrix(5, slow=lambda s, d: d == "h2" or s == "h4", noise=0.1)
    assert named(two) == {("h2", "into"), ("h4", "out of")}
    alone_behind_its_switch = matrix(5, slow=lambda s, d: "h5" in (s, d))
    assert named(alone_behind_its_switch) == {("h5", "into"), ("h5", "out of")}
    assert {one.verdict for one in link_results({})} == {Verdict.SKIP}


def test_a_host_far_slower_than_all_is_named_and_not_the_partners_that_noise_slowed():
    rates = {
        ("h1", "h2"): 0.10e9,
        ("h1", "h3"): 4.25e9,
        ("h2", "h1"): 6.53e9,
        ("h2", "h3"): 7.39e9,
        ("h3", "h1"): 3.91e9,
        ("h3", "h2"): 0.10e9,
    }
    assert named(rates) == {("h2", "into")}
    assert verdicts(rates) == {
        ("active.host", "into h2"): Verdict.FAIL,
        ("active.pair", "h3 → h1 and h1 → h3"): Verdict.WARN,
    }


@pytest.mark.parametrize("hosts", [4, 12])
@pytest.mark.parametrize("both", [True, False])
def test_one_bad_pair_blames_neither_of_its_hosts(hosts, both):
    slow = {("h2", "h3"), *([("h3", "h2")] if both else [])}
    rates = matrix(hosts, slow=slow, noise=0.15)
    found = isolate(rates)
    assert not found.hosts and {(one.source, one.target) for one in found.pairs} == slow
    assert all(one.cleared(found.reference) for one in found.pairs)
    (one,) = (one for one in link_results(rates) if one.verdict is Verdict.FAIL)
    assert one.id == "active.pair" and set(one.hosts) == {"h2", "h3"}
    assert "h2 sends up to" in one.seen and "is open" not in one.seen


@pytest.mark.parametrize("sizes", [(2, 2), (4, 8), (2, 6)])
@pytest.mark.parametrize("both", [True, False])
def test_a_slow_trunk_names_two_groups_and_no_host(sizes, both):
    first = {f"h{number}" for number in range(1, sizes[0] + 1)}

    def crosses(source, target):
        return (source in first and target not in first) or (both and source not in first and target in first)

    rates = matrix(sum(sizes), slow=crosses, noise=0.1)
    found = isolate(rates)
    assert not found.hosts and not found.pairs and not found.split
    assert len(found.trunks) == (2 if both else 1)
    assert {frozenset(group) for one in found.trunks for group in one.groups} >= {frozenset(first)}
    (one,) = (one for one in link_results(rates) if one.verdict is not Verdict.PASS)
    assert one.id == "active.trunk" and ("↔" in one.subject) is both


@given(hosts=st.integers(2, 12), data=st.data())
def test_of_equal_links_with_noise_nobody_is_named(hosts, data):
    pairs = list(matrix(hosts))
    factors = data.draw(st.lists(st.floats(0.85, 1.15), min_size=len(pairs), max_size=len(pairs)))
    rates = {pair: FULL * factor for pair, factor in zip(pairs, factors, strict=True)}
    assert isolate(rates).quiet
    assert {one.verdict for one in link_results(rates)} <= {Verdict.PASS, Verdict.SKIP}


@given(
    rates=st.dictionaries(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")).filter(
            lambda pair: pair[0] != pair[1]
        ),
        st.floats(1e3, 4e11),
        max_size=30,
    )
)
def test_whatever_was_measured_no_sentence_contradicts_the_numbers(rates):
    found = isolate(rates)
    for one in found.hosts:
        into = one.direction is Direction.INTO
        mine = [rate for (s, d), rate in rates.items() if (d if into else s) == one.host]
        is_far = max(mine) < 0.2 * found.reference
        assert max(mine) < 0.8 * found.reference
        assert min(one.partner_rates) >= (0.5 if is_far else 0.8) * found.reference
    for one in found.pairs:
        assert rates[one.source, one.target] == one.rate < 0.7 * found.reference
    for one in found.trunks:
        assert min(len(group) for group in one.groups) > 1 and one.slow >= 0.9 * len(one.rates)
    assert 2 * len(found.hosts) < 2 * 6
    made = link_results(rates)
    assert made and all(one.seen and one.id for one in made)
    if not found.quiet:
        assert any(one.verdict in (Verdict.FAIL, Verdict.WARN) for one in made)


def test_two_hosts_cannot_be_told_apart():
    rates = {("h1", "h2"): QUARTER, ("h2", "h1"): FULL}
    assert not isolate(rates).hosts
    made = {one.id: one for one in link_results(rates)}
    assert made["active.host"].verdict is Verdict.SKIP and made["active.pair"].verdict is Verdict.FAIL
    assert "back 400 Mbit/s" in made["active.pair"].seen and "is open" in made["active.pair"].seen


def test_where_half_of_the_hosts_are_slow_no_host_is_the_exception():
    rates = matrix(4, slow=lambda s, d: "h3" in (s, d) or "h4" in (s, d))
    found = isolate(rates)
    assert not found.hosts and {host for host, _ in found.split} == {"h3", "h4"}
    (one,) = (one for one in link_results(rates) if one.verdict is not Verdict.PASS)
    assert one.verdict is Verdict.WARN and "100 Mbit/s" in one.seen and "400 Mbit/s for all else" in one.seen


def test_slow_pairs_without_a_pattern_are_scatter():
    draw = random.Random(7)
    rates = {pair: rate * draw.choice([0.3, 1.0, 1.0]) for pair, rate in matrix(10).items()}
    found = isolate(rates)
    assert found.scattered and not found.hosts
    assert [one.id for one in link_results(rates) if one.verdict is Verdict.WARN] == ["active.pair"]


def test_a_host_that_is_fast_with_one_partner_is_not_named_as_a_host():
    slow = {pair for pair in matrix(6) if "h3" in pair and "h5" not in pair and pair[1] == "h3"}
    rates = matrix(6, slow=slow)
    found = isolate(rates)
    assert not found.hosts and {one.target for one in found.pairs} == {"h3"}
    made = [one for one in link_results(rates) if one.verdict is Verdict.FAIL]
    assert all("h3 is part of each slow pair" in one.seen for one in made)


def test_the_second_pass_measures_slow_pairs_and_their_hosts_with_good_ones():
    rates = matrix(6, slow=lambda s, d: d == "h3")
    found = suspects_of(rates)
    assert found.hosts == ("h3",) and "h3" not in found.good and len(found.good) == 5
    assert all(pair[1] == "h3" for pair in found.pairs)
    assert suspects_of(matrix(6)).pairs == () and suspects_of({}).hosts == ()


@settings(max_examples=30)
@given(hosts=st.integers(17, 60), seed=st.integers(0, 99), data=st.data())
def test_of_many_hosts_the_bad_one_is_found_with_two_random_partners_and_two_good_ones(hosts, seed, data):
    bad = data.draw(st.integers(0, hosts - 1))
    direction = data.draw(st.sampled_from(list(Direction)))
    draw = random.Random(seed)
    rates = {}

    def measure(rounds):
        for source, target in chain.from_iterable((pair, pair[::-1]) for one in rounds for pair in one):
            slow = (target if direction is Direction.INTO else source) == bad
            rates[f"h{source}", f"h{target}"] = (QUARTER if slow else FULL) * draw.uniform(0.85, 1.15)

    measure(first_rounds(hosts, seed=seed))
    found = suspects_of(rates)
    number = {f"h{index}": index for index in range(hosts)}
    measure(
        second_rounds(
            [(number[a], number[b]) for a, b in found.pairs],
            [number[name] for name in found.hosts],
            [number[name] for name in found.good],
        )
    )
    assert named(rates) == {(f"h{bad}", str(direction))}
    assert not isolate(rates).pairs
