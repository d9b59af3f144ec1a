"""Whose stacks and records a session shows."""

from types import SimpleNamespace

import pytest

from ringleader.launch import hang_verdict
from ringleader.launch.supervision.session import Session

DUMP = """Current thread 0x00007f03 (most recent call first):
  File "/home/u/train.py", line 40 in main
"""


def state(rank, *, over=False, failed=False, **words):
    usual = {
        "pythons": [{"pid": rank + 10, "text": DUMP}],
        "mute": [],
        "unshown": 0,
        "record": None,
        "has_groups": False,
        "name": f"rank {rank}",
        "running": True,
    }
    end = SimpleNamespace(failed=failed) if over else None
    how = "ended with exit code 0" if over else ""
    return SimpleNamespace(rank=rank, end=end, has_failed=failed, how_it_ended=how, **{**usual, **words})


def shown(*states, is_stopping=False, act=Session._explain):
    said = []
    session = SimpleNamespace(
        ranks=dict(enumerate(states)),
        is_stopping=is_stopping,
        _least_wait=None,
        listener=SimpleNamespace(warning=said.append),
        note=lambda kind, who, why: None,
        hang=None,
    )
    act(session)
    return said


def test_a_failed_rank_that_has_been_replaced_or_left_hides_no_stack():
    said = shown(state(0), state(1), state(2, over=True, failed=True))
    assert said[-1].startswith("rank 0, rank 1:")


def test_a_failure_that_ends_the_job_shows_no_stacks():
    assert shown(state(0), state(1), state(2, over=True, failed=True), is_stopping=True) == []


def test_ranks_that_have_ended_are_not_shown_as_present():
    said = shown(state(0), state(1), state(2, over=True))
    assert said[-1].startswith("rank 0, rank 1:") and "rank 2" not in "".join(said)


def test_a_fault_of_a_verdict_costs_only_the_verdict(monkeypatch):
    monkeypatch.setattr(hang_verdict, "judge", lambda *_arguments, **_words: next(iter(())))
    said = shown(state(0), state(1, unshown=3))
    assert said[0] == "no verdict: StopIteration: " and said[-1].startswith("rank 0, rank 1:")
    assert "rank 1: 3 more Pythons are not shown" in said


def test_old_answers_of_all_ranks_are_forgotten_before_they_are_asked():
    told = []
    ranks = {
        0: state(0),
        1: state(1, over=True, record={"a": 1}),
        2: state(2, over=True, failed=True, record={}),
    }
    session = SimpleNamespace(
        ranks=ranks,
        alarms={},
        clock=lambda: 0.0,
        running=lambda: [ranks[0]],
        tell=lambda one, **_: told.append(one),
    )
    Session.show_stacks(session)
    assert told == [ranks[0]] and not any(one.pythons for one in ranks.values())
    assert (ranks[1].record, ranks[2].record) == (None, {})


@pytest.mark.parametrize("kind", [[], {}, None, 3])
def test_a_report_of_no_kind_is_dropped(kind):
    Session.on_report(SimpleNamespace(), state(0), {"report": {"kind": kind}})


def test_samples_of_a_host_come_from_its_agent_alone():
    heard = []
    listener = SimpleNamespace(report=lambda rank, words: heard.append(words))
    session = SimpleNamespace(listener=listener, channels=SimpleNamespace(record=None))
    one = SimpleNamespace(rank=2, host=SimpleNamespace(host=SimpleNamespace(name="h2")))
    words = {"do": "host_sample", "at": 1.0, "interfaces": {"eth0": [1, 2]}, "ports": {}}
    Session.on_host_sample(session, one, words)
    Session.on_report(session, one, {"report": {"kind": "host_sample", "host": "h1"}})
    assert heard == [
        {"kind": "host_sample", "host": "h2", "at": 1.0, "interfaces": {"eth0": [1, 2]}, "ports": {}}
    ]
