"""Jobs of plain `torch.distributed`: hangs of five kinds, healthy ones, rates and stragglers."""

import json
import re
import signal
import time
from typing import Any

import pytest
from tests.conftest import Recorder, Workplace
from tests.time_limits import patience

from ringleader.launch import stragglers
from ringleader.launch.outcome import Outcome

HANGS = """\
import datetime, os, signal, sys, time
import torch, torch.distributed as dist

how, odd, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))
mine = dist.get_rank() == odd
x = torch.ones(8)
for _ in range(4):
    dist.all_reduce(x)
print("ready", flush=True)

def load():
    time.sleep(300)

def reduce():
    dist.all_reduce(x)

def spread():
    dist.broadcast(x, 0)

if how == "sleeps" and mine:
    load()
if how == "dies" and mine:
    os.kill(os.getpid(), signal.SIGKILL)
if how == "stops" and mine:
    os.kill(os.getpid(), signal.SIGSTOP)
if how == "another shape" and mine:
    x = torch.ones(9)
if how == "another order" and mine:
    spread()
if not (how == "leaves out" and mine):
    reduce()
spread()
"""
LINE = {name: HANGS.split("\n").index(f"def {name}():") + 2 for name in ("load", "reduce", "spread")}
DDP = """\
import os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

steps, slow, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(200, 200))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(steps):
    time.sleep(pause * (4 if dist.get_rank() == slow else 1))
    optimizer.zero_grad()
    model(torch.ones(8, 200)).sum().backward()
    optimizer.step()
    if step == 5:
        print("ready", flush=True)
print("done")
"""


def hang(
    workplace: Workplace, python: str, how: str, ranks: int, odd: int, **options: Any
) -> tuple[Outcome, Recorder]:
    (workplace.tmp / "train.py").write_text(HANGS)
    return workplace.launch(
        python, "train.py", how, str(odd), "12", np=ranks, workdir=str(workplace.tmp), grace=2.0,
        hang_seconds=5.0, timeout=180.0, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("how", "ranks", "kinds", "line"),
    [
        ("sleeps", 2, {"missing"}, "load"),
        *(
            pytest.param(*row, marks=pytest.mark.long)
            for row in (
                ("sleeps", 4, {"missing"}, "load"),
                ("dies", 4, {"missing"}, ""),
                ("another shape", 2, {"shape", "missing"}, "reduce"),
                ("another shape", 4, {"shape"}, "reduce"),
                ("another order", 4, {"operation", "order"}, "spread"),
                ("leaves out", 2, {"operation", "order"}, "spread"),
                ("leaves out", 4, {"operation", "order"}, "spread"),
            )
        ),
    ],
)
def test_the_odd_rank_is_named_with_its_line_and_that_of_the_others(
    workplace, python, how, ranks, kinds, line
):
    odd = ranks - 1
    outcome, heard = hang(workplace, python, how, ranks, odd)
    found = outcome.hang
    assert found is not None and found.kind in kinds, heard.warnings
    assert (found.operation, found.number) == ("all_reduce", 5)
    if how == "another shape" and found.kind == "missing":  # Gloo has aborted one: it cannot tell its call
        assert "see whether the ranks' shapes differ" in found.text
    else:  # of two that disagree, nobody knows which is the odd one
        assert found.ranks == ((odd,) if ranks > 2 or found.kind == "missing" else (0, 1))
        places = [LINE["reduce"], *([LINE[line]] if line else [])]
        assert all(any(f"train.py:{one} in" in place for place in found.places) for one in places)
    if how == "sleeps":
        said = next(text for text in heard.warnings if text.startswith(f"rank {odd} is missing: "))
        assert "in all_reduce number 5 of the default group" in said
        assert f"rank {odd} is at train.py:{LINE['load']} in load" in said
        assert f"in all_reduce of [8] at train.py:{LINE['reduce']} in reduce" in said
        assert any(
            text.startswith(f"rank {odd} (localhost):") and f"line {LINE['load']} in load" in text
            for text in heard.warnings
        )
        assert outcome.exit_code == 1, outcome.reason  # Gloo's own time-out, some seconds later
    if how == "dies":
        assert (outcome.exit_code, outcome.whose) == (137, f"rank {odd}")
        assert f"rank {odd} (ended by SIGKILL) is missing" in found.text


FSDP2 = """\
import datetime, os, signal, sys, time
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard

how = sys.argv[1]
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
for layer in (model[0], model[2], model):
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def load():
    time.sleep(300)

def train():
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()

for step in range(6):
    if step == 4 and dist.get_rank() == 1:
        if how == "sleeps":
            load()
        if how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "leaves out":
            dist.barrier()
    train()
print("trained")
"""
FSDP2_LINE = {name: FSDP2.split("\n").index(f"def {name}():") + 2 for name in ("load", "train")}


@pytest.mark.long
@pytest.mark.parametrize("how", ["sleeps", "leaves out", "healthy"])
def test_fsdp2_names_the_rank_that_the_other_waits_for(workplace, python, how):
    (workplace.tmp / "train.py").write_text(FSDP2)
    options = {"workdir": str(workplace.tmp), "grace": 2.0, "hang_seconds": 5.0, "timeout": 90.0}
    outcome, heard = workplace.launch(python, "train.py", how, np=2, **options)
    found = outcome.hang
    if how == "healthy":  # a start that takes longer than --hang-seconds is no accusation
        assert outcome.exit_code == 0 and (found is None or found.kind == "none"), heard.warnings
        assert not any("is missing" in text for text in heard.warnings)
        return
    assert found is not None and "all_gather" in found.operation, heard.warnings
    kinds, ranks = ({"missing"}, (1,)) if how == "sleeps" else ({"operation", "order", "shape"}, (0, 1))
    assert found.kind in kinds and found.ranks == ranks, found
    places = [FSDP2_LINE["train"], *([FSDP2_LINE["load"]] if how == "sleeps" else [])]
    assert all(any(f"train.py:{one} in" in place for place in found.places) for one in places)


@pytest.mark.long
def test_a_stopped_rank_that_cannot_answer_is_named(workplace, python):
    _, heard = hang(workplace, python, "stops", 2, 1)
    said = [text for text in heard.warnings if text.startswith("rank 1 is missing: ")]
    assert said and "rank 1 did not report its collectives: it did not answer in time" in said[0], (
        heard.warnings
    )


@pytest.mark.long
def test_healthy_ranks_are_not_accused(workplace, python):
    """Asked by Ctrl-\\ while they train, and by a time-out that is only too short."""
    (workplace.tmp / "train.py").write_text(DDP)
    words = ("run", "-n", "2", "--oversubscribe", "--timeout", "40", "--workdir", str(workplace.tmp))
    launcher = workplace.ringleader(
        *words, "--json-file", str(workplace.tmp / "out"), python, "train.py", "1000000", "-1", "0.01"
    )
    while b"ready" not in (line := launcher.stdout.readline()):
        assert line, launcher.stderr.read()
    for _ in range(3):
        launcher.send_signal(signal.SIGQUIT)
        while b"nothing shows that the job hangs" not in (line := launcher.stderr.readline()):
            assert line and b"is missing" not in line and b"another" not in line
    _, err = launcher.communicate(timeout=120)
    assert launcher.returncode == 124, err
    found = json.loads((workplace.tmp / "out").read_text())
    assert found["hang"]["kind"] == "none" and found["hang"]["ranks"] == []


@pytest.mark.parametrize(
    ("how", "watch", "said"),
    [
        ("sleeps", "1", b"rank 1 is missing: rank 0 waits in all_reduce number 5 of the default group"),
        ("sleeps", "0", b"the ranks are at different places, and none of them is the odd one out"),
    ],
)
def test_a_job_that_hangs_and_was_not_asked_to_be_watched(workplace, python, how, watch, said):
    """Ctrl-\\ without ``--hang-seconds``; and where nothing of the script is watched, its stacks are."""
    (workplace.tmp / "train.py").write_text(HANGS)
    words = ("run", "-n", "2", "--oversubscribe", "--timeout", "60", "--workdir", str(workplace.tmp))
    words += ("-x", f"RINGLEADER_WATCH={watch}", "--grace", "1")
    launcher = workplace.ringleader(*words, python, "train.py", how, "1", "100")
    for _ in range(2):
        assert b"ready" in launcher.stdout.readline(), launcher.communicate()
    time.sleep(4)  # shorter waits are not said to be hangs
    launcher.send_signal(signal.SIGQUIT)
    heard = b""
    while said not in heard or f"line {LINE['load']} in load".encode() not in heard:
        line = launcher.stderr.readline()
        assert line, heard
        heard += line
    assert f"line {LINE['reduce']} in reduce".encode() in heard + launcher.stderr.readline()
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=60)


def test_without_records_the_rank_elsewhere_is_shown_first(workplace, python):
    script = "import os, time\ndef a():\n time.sleep(99)\ndef b():\n time.sleep(99)\n"
    script += "b() if os.environ['RANK'] == '2' else a()"
    outcome, heard = workplace.launch(python, "-c", script, np=3, timeout=4.0, grace=1.0)
    assert outcome.exit_code == 124 and outcome.hang is not None
    assert (outcome.hang.kind, outcome.hang.ranks) == ("elsewhere", (2,))
    stacks = [text for text in heard.warnings if 'File "<string>"' in text]
    assert [text.split(":")[0] for text in stacks] == [
        "rank 2 (localhost)",
        "rank 0 (localhost), rank 1 (localhost)",
    ]


# --- rates and stragglers ---------------------------------------------------------------------------------


@pytest.mark.long
def test_a_script_without_steps_is_measured_by_the_clock(workplace, python):
    options = "--no-allocation --no-page --no-uncoupled --repeats 1 --name r --grid 1x1 --"
    done = workplace.run(
        "scale", *options.split(), python, "-c", "__import__('time').sleep(1)", cwd=workplace.tmp
    )
    assert done.returncode == 0 and b"no step and no rate has been heard of" in done.stderr, done.stderr
    run = json.loads((workplace.tmp / "runs" / "r" / "run.json").read_text())
    assert [point["samples"][0]["source"] for point in run["points"]] == ["wall clock"]


@pytest.mark.long
def test_a_job_says_how_fast_it_trained(workplace, python):
    (workplace.tmp / "train.py").write_text(DDP)
    words = ("run", "-n", "2", "--oversubscribe", "--workdir", str(workplace.tmp))
    done = workplace.run(
        *words, "--json-file", str(workplace.tmp / "out"), python, "train.py", "350", "-1", "0.02", within=180
    )
    assert done.returncode == 0, done.stderr
    assert re.search(rb"trained at [0-9.]+ steps/s on 2 ranks \(optimizer steps, ", done.stderr)
    rate = json.loads((workplace.tmp / "out").read_text())["rate"]
    assert rate["unit"] == "steps" and rate["ranks"] == 2


@pytest.mark.long
@pytest.mark.parametrize(("slow", "steps"), [(1, 400), (-1, 900)])
def test_a_slow_rank_is_named_and_equal_ones_are_not(workplace, python, monkeypatch, slow, steps):
    monkeypatch.setitem(stragglers.Stragglers.__init__.__kwdefaults__, "windows", 1)
    (workplace.tmp / "train.py").write_text(DDP)
    words = (python, "train.py", str(steps), str(slow), "0.03")
    outcome, heard = workplace.launch(*words, workdir=str(workplace.tmp), timeout=patience(300))
    assert outcome.exit_code == 0
    assert [one.rank for one in outcome.stragglers] == ([slow] if slow >= 0 else []), heard.warnings
    named = sum("rank 1 (localhost) is slow: of each step" in text for text in heard.warnings)
    assert named == (slow >= 0) and all(one.score > 1.5 for one in outcome.stragglers)
