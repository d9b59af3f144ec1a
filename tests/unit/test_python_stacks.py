"""Stacks as faulthandler writes them, and whose stacks and records a session shows."""

import faulthandler
import tempfile
from types import SimpleNamespace

from ringleader.agents import rank_process
from ringleader.launch import hang_verdict
from ringleader.launch.python_stacks import Line, Stack, groups, line_of, outlier, parse, stacks_of, text_of
from ringleader.launch.supervision.session import Session

DUMP = """Thread 0x00007f01 [Thread-1] (most recent call first):
  File "/v/lib/python3.11/site-packages/ringleader/agents/script_watch.py", line 9 in _answer
  File "/usr/lib/python3.11/threading.py", line 1012 in run

Thread 0x00007f02 (most recent call first):
  File "/home/u/data.py", line 5 in read

Current thread 0x00007f03 (most recent call first):
  File "/v/lib/python3.11/site-packages/torch/nn.py", line 7 in forward
  File "/home/u/my train.py", line ??? in main
  File "/home/u/my train.py", line 40 in <module>
"""


def test_the_main_thread_comes_first_and_ours_is_left_out():
    main, other = parse(DUMP)
    assert main[0] == Line(file="/v/lib/python3.11/site-packages/torch/nn.py", line=7, function="forward")
    assert main[1].line == 0 and str(main[2]) == "my train.py:40 in <module>"
    assert [line.file for line in other] == ["/home/u/data.py"]
    assert parse("") == parse("Segmentation fault\n") == [], "what is cut short is read as far as it goes"
    assert parse(DUMP[: DUMP.index("line 40")])[0][-1].line == 0
    cut = DUMP.split("\n\n")
    assert parse("\n\n".join((cut[2], cut[1], "...")))[0][0].file.endswith("nn.py")
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        main, *_others = parse(file.read())
    assert main[0].file == __file__ and main[0].function.startswith("test_the_main_thread"), "a real one"


def test_equal_stacks_are_one_group_and_the_rarest_comes_first():
    stacks = [of(0, 7), of(1, 7), of(2, 3), of(3, 7), of(0, 9, first=False)]
    assert [[one.rank for one in found] for found in groups(stacks)] == [[2], [0, 1, 3], [0]]
    assert outlier({one.rank: one for one in stacks[:4]}) == ([2], [0, 1, 3])
    assert outlier({0: of(0, 1), 1: of(1, 2)}) == ([], [])
    assert str(of(0, 7).at) == "t.py:7 in g"
    one, other = of(1, 7), of(2, 7)
    one = Stack(rank=1, pid=1, is_first=True, main=one.main, others=(of(0, 3).main,))
    assert "  other threads, of rank 1; those of the others differ:" in text_of([one, other], "ranks 1, 2")
    assert "differ" not in text_of([one, one], "ranks 1, 2")


def of(rank, line, *, first=True):
    main = (
        Line(file="/v/site-packages/x.py", line=1, function="f"),
        Line(file="t.py", line=line, function="g"),
    )
    return Stack(rank=rank, pid=100 + rank, is_first=first, main=main)


def test_a_group_is_shown_with_its_first_stack():
    text = text_of([of(1, 7), of(2, 7)], "rank 1 (h1), rank 2 (h2)")
    assert text.splitlines() == [
        "rank 1 (h1), rank 2 (h2):",
        '    File "/v/site-packages/x.py", line 1 in f',
        '    File "t.py", line 7 in g',
    ]
    assert "process 100 beside the script:" in text_of([of(0, 7, first=False)], "rank 0 (h1)")
    many = Stack(rank=0, pid=1, is_first=True, main=(Line(file="t.py", line=1, function="f"),) * 500)
    assert len(text_of([many], "rank 0").splitlines()) == 41
    script = Line(file="/home/u/train.py", line=40, function="<module>")
    deep = Stack(rank=0, pid=1, is_first=True, main=(*many.main, script), others=((of(0, 1).main[1],) * 60,))
    lines = text_of([deep], "rank 0").splitlines()
    assert lines[40] == '    File "/home/u/train.py", line 40 in <module>' and lines[1].endswith("in f")
    assert lines[41] == "    and 61 more lines of other threads"


def test_what_agents_send_is_read_or_left_out():
    good = {"pid": 5, "text": DUMP}
    assert [
        one.pid for one in stacks_of(3, [None, {}, {"pid": "5"}, {"pid": 6, "text": "no stack"}, good])
    ] == [5]
    assert stacks_of(3, None) == [] and stacks_of(3, [good])[0].is_first
    assert line_of(["a.py", 3, "f"]) == Line(file="a.py", line=3, function="f")
    assert line_of(None) is line_of([1, 2, 3]) is line_of(["a.py"]) is None
    assert line_of(["a.py", "x", "f"]).line == 0


def test_of_a_dump_that_is_too_long_the_main_thread_is_sent(tmp_path, monkeypatch):
    """`faulthandler` writes the main thread last."""
    monkeypatch.setattr(rank_process.process_tree, "send", lambda *_: None)
    path = tmp_path / "stacks"
    path.write_text("")
    able = dict.fromkeys(range(1, rank_process.MOST_STACKS + 4), str(path))
    request = rank_process.StackRequest(able, [])
    thread = DUMP.partition("Current")[0]
    path.write_text(thread * (rank_process.LONGEST_STACK // len(thread) + 9) + DUMP)
    answer = request.answer()
    text = answer["pythons"][0]["text"]
    assert len(text) == rank_process.LONGEST_STACK and parse(text)[0] == parse(DUMP)[0]
    assert answer["unshown"] == 3


SHORT_DUMP = """Current thread 0x00007f03 (most recent call first):
  File "/home/u/train.py", line 40 in main
"""


def state(rank, *, over=False, failed=False, **words):
    usual = {
        "pythons": [{"pid": rank + 10, "text": SHORT_DUMP}],
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
    for failed in (True, False):
        said = shown(state(0), state(1), state(2, over=True, failed=failed))
        assert said[-1].startswith("rank 0, rank 1:") and (failed or "rank 2" not in "".join(said))
    assert shown(state(0), state(1), state(2, over=True, failed=True), is_stopping=True) == []


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


def test_a_report_of_no_kind_is_dropped():
    for kind in ([], {}, None, 3):
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
