"""Rounds of pairs: a host has one partner at most in each, and nobody is left out."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringleader.bench.pair_rounds import ALL_PAIRS, all_pairs, first_rounds, second_rounds


def one_partner_at_most(rounds):
    return all(len({host for pair in one for host in pair}) == 2 * len(one) for one in rounds)


@pytest.mark.parametrize("hosts", [0, 1, 2, 3, 8, 19])
def test_every_pair_has_its_turn_once_in_as_few_rounds_as_there_can_be(hosts):
    rounds = all_pairs(hosts)
    assert sorted(pair for one in rounds for pair in one) == list(combinations(range(hosts), 2))
    assert one_partner_at_most(rounds)
    assert len(rounds) == (0 if hosts < 2 else hosts - 1 + hosts % 2)


@settings(max_examples=30)
@given(hosts=st.integers(ALL_PAIRS + 1, 120), seed=st.integers(0, 1000))
def test_of_many_hosts_each_has_two_partners(hosts, seed):
    rounds = first_rounds(hosts, seed=seed)
    assert len(rounds) == 2 and one_partner_at_most(rounds)
    pairs = [pair for one in rounds for pair in one]
    assert len(set(pairs)) == len(pairs)
    partners = {host: sum(host in pair for pair in pairs) for host in range(hosts)}
    assert set(partners.values()) <= {1, 2} and sum(count == 1 for count in partners.values()) <= 2


def test_a_suspect_meets_known_good_hosts_and_its_slow_pairs_again():
    rounds = second_rounds([(0, 5), (5, 7)], suspects=[5], good=[1, 2, 3])
    pairs = {pair for one in rounds for pair in one}
    assert {(0, 5), (5, 7)} < pairs and len(pairs) == 4
    assert sum(5 in pair and bool({*pair} & {1, 2, 3}) for pair in pairs) == 2
    assert one_partner_at_most(rounds)


@given(
    pairs=st.sets(st.tuples(st.integers(0, 5), st.integers(6, 11)), max_size=12),
    suspects=st.sets(st.integers(0, 11)),
    good=st.sets(st.integers(0, 11)),
)
def test_a_second_pass_always_ends_and_keeps_its_pairs(pairs, suspects, good):
    rounds = second_rounds(pairs, suspects, good)
    assert pairs <= {pair for one in rounds for pair in one}
    assert one_partner_at_most(rounds)
    assert all(a < b for one in rounds for a, b in one)
