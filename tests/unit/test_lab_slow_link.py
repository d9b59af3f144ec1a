"""``lab slow``: which end of a cable is limited to what, and how it is lifted again."""

from __future__ import annotations

import pytest

from ringleader.cli import lab
from ringleader.errors import RequestError
from ringleader.lab import saved_state
from ringleader.lab.slow_link import SlowLink, slow_link_of, slow_steps
from ringleader.lab.spec import LabSpec
from ringleader.lab.steps import shell_line

SWITCH, HOST = "tc qdisc replace dev rl-lab-3", "tc -n rl-lab-h3 qdisc replace dev eth0"


def lines(limit, **spec):
    return [shell_line(step) for step in slow_steps(LabSpec(**spec), 3, limit)]


def test_what_reaches_a_host_is_limited_at_the_switch():
    assert lines(SlowLink(into=10**9)) == [
        f"{SWITCH} root handle 3: pfifo",
        f"{SWITCH} root handle 1: tbf rate 1000000000bit burst 250000 limit 2000000",
    ]


def test_what_a_host_sends_is_limited_at_the_host():
    assert lines(SlowLink(out_of=10**9)) == [
        f"{HOST} root handle 3: pfifo",
        f"{HOST} root handle 1: tbf rate 1000000000bit burst 250000 limit 2000000",
    ]


def test_a_delay_alone_is_for_both_ways_at_the_rate_of_the_lab():
    found = lines(SlowLink(delay=0.005))
    assert [line.split()[-3:] for line in found if "netem" in line] == [["5000us", "limit", "5000"]] * 2
    assert sum("rate 8000000000bit" in line for line in found) == 2
    found = lines(SlowLink(into=10**9, delay=0.005))
    assert sum("netem" in line for line in found) == 1 and not any("-n" in line for line in found)


def test_lifting_all_limits_gives_both_ends_what_the_lab_was_made_with():
    assert [line.split("root")[1] for line in lines(None)] == [
        " handle 3: pfifo",
        " handle 1: tbf rate 8000000000bit burst 2000000 limit 16000000",
    ] * 2
    assert sum("delay 200us" in line for line in lines(None, latency=0.0002)) == 2


def test_an_unknown_host_is_told_with_what_else_is_wrong(monkeypatch):
    made = saved_state.lab_of(LabSpec(hosts=2))
    monkeypatch.setattr(saved_state, "current", lambda name: made)
    with pytest.raises(RequestError) as caught:
        lab.slow(lab.SlowOptions(host="nohost"))
    assert [one.where for one in caught.value.faults] == ["ringleader lab slow", "HOST"]


def test_words_become_a_limit():
    found = slow_link_of(into="100mbit", out_of="1.5 Gbps", delay="2ms", off=False)
    assert found == SlowLink(into=10**8, out_of=15 * 10**8, delay=0.002)
    assert slow_link_of(into=None, out_of=None, delay=None, off=True) is None


@pytest.mark.parametrize(
    ("words", "wheres"),
    [
        ({}, ["ringleader lab slow"]),
        ({"off": True, "into": "1gbit"}, ["--off"]),
        ({"into": "fast", "out_of": "1bit", "delay": "1h"}, ["--into", "--out-of", "--delay"]),
        ({"delay": "11s"}, ["--delay"]),
    ],
)
def test_all_faults_are_told_at_once(words, wheres):
    with pytest.raises(RequestError) as raised:
        slow_link_of(**({"into": None, "out_of": None, "delay": None, "off": False} | words))
    assert [fault.where for fault in raised.value.faults] == wheres
