"""Which steps a rank records, and what it reports of that. No PyTorch: a record of calls stands in for it."""

import gzip
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.commands import finished

from ringleader.agents import script_watch, step_profile
from ringleader.agents.step_profile import Recorder


class Torch:
    """PyTorch's profiler as far as the recorder calls it, after ``torch/profiler/profiler.py`` of 2.13."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.marks: list[str] = []
        marks, about = self.marks, dict[str, Any]()

        def noting(call: str) -> Any:
            return lambda _self: self.calls.append(call)

        class Profile:
            prepare_trace, start_trace, stop_trace = map(noting, ("prepare", "start", "stop"))

            def add_metadata_json(self, name: str, text: str) -> None:
                about[name] = json.loads(text)

            def export_chrome_trace(_self, path: str) -> None:
                self.calls.append("export")
                Path(path).write_text(json.dumps({"marks": marks, **about}))

        class Mark:
            def __init__(self, name: str) -> None:
                self.name = name

            def __enter__(self) -> None:
                marks.append(f"+{self.name}")

            def __exit__(self, *_: object) -> None:
                marks.append(f"-{self.name}")

        prepared = {"_prepare_trace": noting("another is prepared"), "_start_trace": noting("another starts")}
        self.script = type("profile", (), prepared)
        """``torch.autograd.profiler.profile``: every profiler of the process prepares one."""
        ranges = type("emit_nvtx", (), {"__enter__": noting("ranges start")})
        self.profiler = SimpleNamespace(profile=Profile, record_function=Mark)
        profilers = SimpleNamespace(profile=self.script, emit_nvtx=ranges, _is_profiler_enabled=False)
        self.autograd = SimpleNamespace(profiler=profilers)
        self.distributed = SimpleNamespace(is_available=lambda: False)


class Rank:
    def __init__(self, first: int, last: int, path: Path) -> None:
        self.torch, self.reports, self.path = Torch(), list[dict[str, Any]](), path
        self.recorder = Recorder(first, last, str(path), lambda kind, **words: self.reports.append(words))

    made = 0

    def steps(self, first: int, last: int) -> None:
        for self.made in range(first, last + 1):
            self.recorder.at(self.made)

    def trace(self) -> Any:
        return json.loads(gzip.decompress(self.path.read_bytes()))


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(first: int, last: int) -> Rank:
        one = Rank(first, last, tmp_path / "trace.json.gz")
        monkeypatch.setitem(step_profile.sys.modules, "torch", one.torch)
        monkeypatch.setitem(step_profile.sys.modules, "ringleader_script_watch", script_watch)
        return one

    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    return made


def marks(*numbers: int) -> list[str]:
    return [f"{sign}ProfilerStep#{number}" for number in numbers for sign in "+-"]


def test_the_steps_asked_for_are_recorded_and_no_others(rank: Any) -> None:
    one, calls = rank(5, 7), list[str]()
    for last, more in ((2, []), (3, ["prepare"]), (6, ["start"]), (20, ["stop", "export"])):
        one.steps(one.made + 1, last)
        calls += more
        assert one.torch.calls == calls
    about = {"distributedInfo": {"rank": 3, "world_size": 4}, "ringleader_last_step": 7}
    assert one.trace() == {"marks": marks(5, 6, 7), **about}
    recorded = {"state": "recorded", "first": 5, "last": 7, "why": ""}
    assert one.reports == [{"state": "counts"}, recorded]
    assert [path.name for path in one.path.parent.iterdir()] == ["trace.json.gz"]
    second = rank(2, 2)  # the first that can be recorded
    second.steps(1, 3)
    assert second.trace()["marks"] == marks(2)


@pytest.mark.parametrize(
    ("made", "why"), [(0, "made no step of an optimizer"), (4, "made 4 steps"), (6, "made 6 steps")]
)
def test_a_script_that_ends_earlier_keeps_what_was_recorded(rank: Any, made: int, why: str) -> None:
    one = rank(5, 70)
    one.steps(1, made)
    one.recorder.end()
    if made == 6:
        assert one.reports[1:] == [{"state": "recorded", "first": 5, "last": 6, "why": why}]
        assert one.trace()["ringleader_last_step"] == 6
    else:
        assert one.reports[1:] == [{"state": "none", "why": f"{why}, and step 5 is the first to record"}]
        assert not one.path.exists() and "export" not in one.torch.calls


def test_the_scripts_own_profiler_and_ranges_for_other_tools_have_precedence(rank: Any) -> None:
    for begin, said in (
        (lambda torch: torch.script()._prepare_trace(), "another is prepared"),
        (lambda torch: torch.autograd.profiler.emit_nvtx().__enter__(), "ranges start"),
    ):
        one = rank(2, 9)
        one.steps(1, 3)
        begin(one.torch)
        assert one.torch.calls[-2:] == ["export", said]
        assert one.reports[-1]["why"] == "the script started its own profiler"
    other = rank(2, 9)
    other.torch.autograd.profiler._is_profiler_enabled = True
    other.steps(1, 12)
    why = "RuntimeError: the script's own profiler is running"
    assert other.torch.calls == [] and other.reports[1:] == [{"state": "failed", "why": why}]


def test_a_profiler_that_was_prepared_before_ours_is_prepared_again(rank: Any) -> None:
    """A schedule's warm-up prepares it; the step at which it starts does not."""
    for last in (9, 3):  # ours still runs then, or has ended
        one = rank(2, last)
        own = one.torch.script()
        own._prepare_trace()
        one.steps(1, 4)
        own._start_trace()
        own._start_trace()
        again = ["another is prepared", "another starts", "another starts"]
        assert one.torch.calls[-5:] == ["stop", "export", *again]


REAL = """\
import sys
import torch
from ringleader.agents import script_watch, step_profile
sys.modules["ringleader_script_watch"] = script_watch
recorder = step_profile.Recorder(3, 50, "trace.json.gz", lambda _kind, **words: print(words))
own = lambda profile: print(len([one for one in profile.events() if one.name == "aten::dot"]), "recorded")
schedule = torch.profiler.schedule(wait=0, warmup=5, active=3, repeat=1)
cpu = [torch.profiler.ProfilerActivity.CPU]
with torch.profiler.profile(activities=cpu, schedule=schedule, on_trace_ready=own) as profile:
    for number in range(1, 11):
        torch.ones(10) @ torch.ones(10)
        recorder.at(number)
        profile.step()
with torch.autograd.profiler.emit_itt():
    torch.ones(1)
"""


@pytest.mark.long
@pytest.mark.process
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_a_script_with_a_scheduled_profiler_records_its_own_steps(tmp_path: Path) -> None:
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
    ended = finished([sys.executable, "-c", REAL], cwd=tmp_path, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert "3 recorded" in ended.stdout
    assert "'state': 'recorded', 'first': 3, 'last': 5, 'why': 'the script started its own" in ended.stdout
    assert (tmp_path / "trace.json.gz").exists()


def test_a_child_of_the_script_and_one_without_pytorch_record_nothing(
    rank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = rank(2, 4)
    with monkeypatch.context() as patched:
        patched.setattr(step_profile.os, "getpid", lambda: 1)
        one.steps(1, 9)
    assert one.torch.calls == [] and one.reports == [{"state": "counts"}]
    other = rank(2, 4)
    monkeypatch.delitem(step_profile.sys.modules, "torch")
    other.steps(1, 9)
    other.recorder.end()
    why = "the script has not imported torch, whose profiler records the steps"
    assert other.reports[1:] == [{"state": "none", "why": why}]


def test_an_error_of_the_profiler_is_reported_once_and_none_of_the_scripts(rank: Any) -> None:
    one = rank(2, 4)

    def refuse(_: object) -> None:
        raise OSError("no room")

    one.torch.profiler.profile.start_trace = refuse
    one.steps(1, 9)
    one.recorder.end()
    assert one.reports[1:] == [{"state": "failed", "why": "OSError: no room"}]


def test_the_wait_of_our_own_optimizer_is_marked(rank: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"exchange": lambda self: None, "exchanged": lambda self: None}
    metrics = SimpleNamespace(StepMetrics=type("StepMetrics", (), made))
    monkeypatch.setitem(step_profile.sys.modules, "ringleader.adapters.step_metrics", metrics)
    one, ours = rank(2, 3), metrics.StepMetrics()
    for number in range(1, 6):
        ours.exchange()
        ours.exchanged()
        one.recorder.at(number)
    inside = [f"{sign}ringleader:all_reduce" for sign in "+-"]
    two, three = ((f"+ProfilerStep#{number}", *inside, f"-ProfilerStep#{number}") for number in (2, 3))
    assert one.trace()["marks"] == [*two, *three]


def test_a_watch_drives_it(tmp_path: Path) -> None:
    noted, reports = list[int](), list[str]()
    steps = script_watch.Steps(lambda count, _by: noted.append(count))
    watch = SimpleNamespace(steps=steps, report=lambda kind, **words: reports.append(words["state"]))
    step_profile.attach(watch, "20:40", str(tmp_path / "t"))
    steps.add("torch.optim", 1)
    assert (noted, reports) == ([1], ["counts"])
