"""What a terminal or a log shows of a job, and its line of progress."""

import io
import json
import threading

import pytest

from ringleader.cli.run.command import outcome_json
from ringleader.cli.run.terminal import Terminal, last_words, rate_text
from ringleader.cli.terminal_progress import EVERY, ProgressLine, bar, shown_while
from ringleader.fabric.transport_proof.proof import HostProof, TransportProof, WireShares
from ringleader.fabric.wires import Wire
from ringleader.launch.outcome import Outcome, RankEnd
from ringleader.launch.rank_output import Outlet
from ringleader.metrics import Sample
from ringleader.plan.job import Family, Job
from ringleader.plan.rank_placement import place


def end(rank=1, **words):
    values = {"host": "h2", "exit_code": 0, "signal": None, "seconds": 1.25, "at": 2.0}
    return RankEnd(rank=rank, **(values | words))


@pytest.fixture
def make_outcome(make_facts, make_mpi):
    def make(**words):
        plan = place(Job(command=("x",), np=2), (make_facts("localhost", 2),))
        values = {
            "exit_code": 0,
            "whose": "ringleader",
            "reason": "",
            "ends": (end(0), end(1)),
            "first_failure": None,
            "plan": plan,
            "mpi": make_mpi(Family.OPENMPI5),
            "seconds": 3.0,
        }
        return Outcome(**(values | words))

    return make


def direct(stream):
    return Outlet(stream.write, stream.flush)


def screen(*, is_tty=False, **words):
    out, err = io.BytesIO(), io.BytesIO()
    return Terminal(stdout=direct(out), stderr=direct(err), is_tty=is_tty, **words), out, err


def test_lines_go_where_the_rank_sent_them():
    terminal, out, err = screen()
    terminal.output(0, "stdout", b"hello\n")
    terminal.output(12, "stderr", b"oh \xff\n")
    terminal.flush()
    assert (out.getvalue(), err.getvalue()) == (b"[0] hello\n", b"[12] oh \xff\n")
    terminal, out, _ = screen(prefix=False)
    terminal.output(0, "stdout", b"a\r\n")
    terminal.output(1, "stdout", b"b")
    terminal.finish(None)
    assert out.getvalue() == b"a\r\nb\n"
    terminal, out, err = screen(quiet=True)
    terminal.output(0, "stdout", b"hello\n")
    terminal.warning("rank 0 has ended")
    assert (out.getvalue(), err.getvalue()) == (b"", b"ringleader: rank 0 has ended\n")


def test_a_good_end_says_what_carried_the_bytes_and_nothing_else(make_outcome):
    terminal, out, err = screen(transport=True)
    terminal.finish(make_outcome(proof=PROOF))
    assert out.getvalue() == b""
    assert err.getvalue().startswith(b"ringleader: h1 to other hosts: TCP on eth0 carried 100% of 64 MiB")
    assert err.getvalue().count(b"\n") == 1
    for words, outcome in (({}, {"proof": PROOF}), ({"transport": True}, {"proof": TransportProof()})):
        silent = screen(**words)
        silent[0].finish(make_outcome(**outcome))
        assert silent[2].getvalue() == b""
    terminal, _, err = screen(transport=True)
    terminal.finish(make_outcome(exit_code=7, whose="rank 1", reason="rank 1 failed", proof=PROOF))
    assert b"to other hosts" not in err.getvalue(), "a failed job has other last words"
    document = json.loads(json.dumps(outcome_json(make_outcome(proof=PROOF), Job(command=("x",)))))
    assert document["proof"]["hosts"][0]["between"]["shares"] == {"tcp": 1.0}


def test_failures_are_explained(make_outcome):
    killed = end(0, exit_code=None, signal=9)
    assert "memory" in last_words(make_outcome(exit_code=137, whose="rank 0", first_failure=killed))
    text = last_words(make_outcome(exit_code=124, whose="ringleader", reason="the job ran longer than 5 s"))
    assert text.splitlines() == [
        "ringleader: the job ran longer than 5 s",
        "ringleader: exit code 124 (ringleader)",
    ]
    slow = Sample(rate=2 / 1.5, step_seconds=1.5, source="steps", heard=2)
    assert rate_text(slow) == "trained at 0.667 steps/s on 2 ranks (optimizer steps, 1.50 s each)"


PROOF = TransportProof(
    hosts=(
        HostProof(
            host="h1",
            ranks=(0,),
            between=WireShares(
                exchanged=64 << 20,
                shares={Wire.TCP: 1.0},
                devices={Wire.TCP: ("eth0",)},
                evidence=("eth0 carried 65 MiB",),
            ),
        ),
    )
)


def test_the_first_failure_is_shown_last(make_outcome):
    failure = end(1, exit_code=7, log="/out/rank.1/stderr")
    terminal, _, err = screen()
    terminal.output(0, "stderr", b"unfinished")
    terminal.finish(
        make_outcome(exit_code=7, whose="rank 1", reason="rank 1 on h2 failed", first_failure=failure)
    )
    assert err.getvalue().decode().splitlines() == [
        "[0] unfinished",
        "ringleader: rank 1 on h2 failed",
        "    log: /out/rank.1/stderr",
        "ringleader: exit code 7 (rank 1)",
    ]


def test_the_outcome_for_programs(make_outcome):
    failure = end(1, exit_code=7, log="/l")
    outcome = make_outcome(exit_code=7, whose="rank 1", first_failure=failure, ends=(end(0), failure))
    found = json.loads(json.dumps(outcome_json(outcome, Job(command=("x", "y")))))
    assert found["format"] == 1
    assert (found["exit_code"], found["whose"], found["command"]) == (7, "rank 1", ["x", "y"])
    assert (found["first_failure"]["rank"], found["first_failure"]["log"]) == (1, "/l")
    assert [one["exit_code"] for one in found["ranks"]] == [0, 7]
    assert [one["local_rank"] for one in found["plan"]] == [0, 1]
    assert found["mpi"]["family"] == "openmpi5"
    assert found["hosts"] == [{"name": "localhost", "hostname": "localhost", "ranks": 2}]
    assert json.loads(json.dumps(outcome_json(make_outcome(), Job(command=("x",)))))["first_failure"] is None


def test_an_elastic_job_is_measured_in_its_longest_generation():
    """Ranks that leave, and numbers that go to other processes, belong to one generation each."""
    terminal, _, _ = screen()
    clocks = {"a": 0.0, "b": 5000.0, "c": 90000.0}

    def trains(rank, clock, steps, seconds):
        for step in steps:
            at = clocks[clock] + seconds * step
            terminal.report(rank, {"kind": "steps", "by": "torch.optim", "steps": step, "seconds": at})

    terminal.report(0, {"kind": "generation", "size": 3})
    for rank, clock in enumerate(clocks):
        trains(rank, clock, range(101), 0.1)
    terminal.report(0, {"kind": "generation", "size": 2})
    trains(0, "a", range(101, 131), 0.1)
    trains(1, "c", range(101, 131), 0.1)  # the rank that was number 2
    rate = terminal.rate(2)
    assert rate is not None and (rate.heard, rate.source) == (3, "steps")
    assert rate.rate == pytest.approx(30, rel=0.05) and rate.step_seconds == pytest.approx(0.1, rel=0.05)
    assert terminal.rate(2) == rate
    assert screen()[0].rate(2) is None


class Screen:
    def __init__(self, *, is_tty, width=80):
        self.text, self.now = "", 100.0
        self.line = ProgressLine(
            is_tty=is_tty, write=self._write, clock=lambda: self.now, width=width, prefix="job: "
        )

    def _write(self, text):
        self.text += text


def test_on_a_terminal_each_text_overwrites_the_last():
    screen = Screen(is_tty=True, width=12)
    screen.line.show("1 of 9 hosts")
    screen.line.show("2")
    screen.line.keep("stays")
    screen.line.show("")
    assert screen.text == "job: 1 of 9\r\x1b[Kjob: 2\r\x1b[Kjob: stays\n"


def test_in_a_log_a_new_text_is_shown_now_and_then():
    screen = Screen(is_tty=False)
    screen.line.show("1 of 9 hosts")
    screen.now += EVERY
    screen.line.show("2 of 9 hosts")
    screen.line.show("3 of 9 hosts")
    screen.now += EVERY - 1
    screen.line.show("4 of 9 hosts")
    screen.now += 1
    screen.line.show("5 of 9 hosts")
    screen.now += EVERY
    screen.line.show("5 of 9 hosts")
    screen.line.show("")
    screen.line.clear()
    assert screen.text == "job: 2 of 9 hosts\njob: 5 of 9 hosts\n"


def test_what_counts_has_a_bar():
    for text, shown in (
        ("0 of 4 hosts", "[                    ] "),
        ("p2p: round 3 of 4", "[===============     ] "),
        ("5 of 4", ""),
        ("waiting for sshd", ""),
    ):
        assert bar(text) == shown
        for width in (80, 59):
            screen = Screen(is_tty=True, width=width)
            screen.line.show(text)
            assert screen.text == f"job: {shown if width == 80 else ''}{text}"


def test_long_work_is_shown_on_a_terminal_and_its_line_removed():
    written, shown = [], threading.Event()

    def write(text):
        written.append(text)
        shown.set()

    with shown_while("drawing the page", ProgressLine(is_tty=True, write=write, width=80), after=0.0):
        assert shown.wait(60)
    assert written[0].startswith("ringleader: drawing the page (") and written[-1] == "\r\x1b[K"


def test_short_work_and_a_log_show_nothing():
    before = threading.active_count()
    for is_tty in (True, False):
        screen = Screen(is_tty=is_tty)
        with shown_while("drawing the page", screen.line, after=1000.0 if is_tty else 0.0):
            pass
        assert screen.text == ""
    with pytest.raises(OSError), shown_while("work", Screen(is_tty=True).line):
        raise OSError
    assert threading.active_count() == before


CLEAR = b"\r\x1b[K"


def test_progress_is_for_terminals_and_gives_way_to_lines():
    terminal, out, err = screen(is_tty=True)
    terminal.progress("3 of 4 hosts reached")
    terminal.progress("4 of 4 hosts reached")
    terminal.output(0, "stdout", b"hello\n")
    terminal.flush()
    terminal.progress("")
    assert out.getvalue() == b"[0] hello\n"
    assert err.getvalue() == (
        b"ringleader: [===============     ] 3 of 4 hosts reached"
        + CLEAR
        + b"ringleader: [====================] 4 of 4 hosts reached"
        + CLEAR
    )
    plain, _, silent = screen()
    plain.progress("3 of 4 hosts reached")
    assert silent.getvalue() == b""


def test_progress_in_a_log_is_a_line_now_and_then():
    now, err = [0.0], io.BytesIO()
    terminal = Terminal(stdout=direct(err), stderr=direct(err), is_tty=False, clock=lambda: now[0])
    terminal.progress("1 of 4 hosts reached")
    now[0] = 60.0
    terminal.progress("2 of 4 hosts reached")
    assert err.getvalue() == b"ringleader: 2 of 4 hosts reached\n"
