"""``ringleader run`` as a user types it, on the embedded MPI: output, exit codes, files, words."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.commands import finished
from tests.time_limits import patience

import ringleader
from ringleader.errors import RankError, RefusedError, RequestError

pytestmark = pytest.mark.mpi


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run one command line in a directory, two ranks on however many cores there are."""
    argv = [sys.executable, "-m", "ringleader", "run", "-n", "2", "--oversubscribe", *words]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    return finished(argv, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, timeout=90)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory whose name has spaces and what else a shell would trip over."""
    directory = tmp_path / "my dir; $HOME 'x'"
    directory.mkdir()
    return directory


def test_a_healthy_job(place: Path) -> None:
    done = run("--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE; pwd", cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    expected = [f"[{rank}] {line}" for rank in (0, 1) for line in (f"rank {rank} of 2", str(place))]
    assert sorted(done.stdout.splitlines()) == sorted(expected)


def test_arguments_and_variables_arrive_byte_for_byte(place: Path) -> None:
    words = ["a b", "'\"", "$HOME;ls", "line\nbreak", "", "*", "é", "--", "-n", "\\"]
    show = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['ODD'], sys.executable]))"
    done = run("-x", "ODD=$x 'y'\n\"z\"", "--no-prefix", "python", "-c", show, *words, cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    python = str(Path(sys.executable).parent / "python")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[words, "$x 'y'\n\"z\"", python]] * 2


XID = "NVRM: Xid (PCI:0000:05:00): 79, pid=1234, GPU has fallen off the bus."


def test_a_failing_ranks_message_quotes_the_kernel(place: Path) -> None:
    log = place / "kernel.log"
    log.write_text("NVRM: Xid (PCI:0000:07:00): 48, of an earlier job\n")
    script = "if [ $RANK = 0 ]; then touch begun; exec sleep 60; fi; until [ -e begun ]; do sleep 0.1; done; "
    script += f"echo '{XID}' >> kernel.log; sleep 0.5; exit 9"
    words = ("--kernel-log", str(log), "--json-file", "o.json", "--", "sh", "-c", script)
    done = run(*words, cwd=place)
    outcome = json.loads((place / "o.json").read_text())
    (fault,) = outcome["host_faults"]
    assert (done.returncode, fault["kind"], fault["number"]) == (9, "kernel.xid", 79), done.stderr
    live, last = done.stderr.split("ringleader: rank 1 on ")
    assert "the kernel reports: Xid 79 on GPU 0000:05:00.0" in live and XID in live
    assert "the kernel reports: Xid 79" in last and XID in last and "→ restart the host" in last


def test_the_first_failure_is_told_last_and_written_down(place: Path) -> None:
    script = "echo out $RANK; echo err $RANK >&2; [ $RANK = 0 ] || exit 7; sleep 60"
    done = run("-o", "logs", "--json-file", "o.json", "--quiet", "sh", "-c", script, cwd=place)
    assert (done.returncode, done.stdout) == (7, "")
    # On a busy machine it also says for whom it waits.
    *_, failure, where, last = done.stderr.splitlines()
    log = place / "logs" / "rank.1" / "stderr"
    assert failure.startswith("ringleader: rank 1 on localhost ended with exit code 7")
    assert (where, last) == (f"    log: {log}", "ringleader: exit code 7 (rank 1)")
    assert log.read_text() == "err 1\n"
    outcome = json.loads((place / "o.json").read_text())
    assert (outcome["exit_code"], outcome["whose"]) == (7, "rank 1")
    assert outcome["first_failure"]["log"] == str(log)
    assert [one["exit_code"] for one in outcome["ranks"]][1] == 7
    assert outcome["ranks"][0]["stopped"]


def test_json_has_standard_output_to_itself_and_only_chosen_ranks_are_shown(place: Path) -> None:
    (place / "ringleader.toml").write_text('[run]\nshow-ranks = "1"\n')
    seen = "echo out $RANK; env | grep -c ^RINGLEADER_OPT"
    done = run("-x", "RINGLEADER_DEADLINE=60", "--json", "--", "sh", "-c", f"{seen}; true", cwd=place)
    assert done.returncode == 0
    assert done.stderr == "[1] out 1\n[1] 0\n"
    assert json.loads(done.stdout)["exit_code"] == 0


def test_any_address_of_this_machine_is_a_host(workplace, mpi, python):
    words = ("-H", "127.0.1.1:2", python, "-c", "import sys; print(sys.argv[1:])", ":", "x")
    done = workplace.run("run", "--mpi", mpi, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"[':', 'x']") == 2


# --- GPUs -------------------------------------------------------------------------------------------------

SCRIPT = """
import os
gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
own = gpus[int(os.environ["LOCAL_RANK"]) % len(gpus)]  # what torch.cuda.set_device(hvd.local_rank()) takes
print("sees", ",".join(gpus), "takes", own, "JAX takes", gpus[int(os.environ["JAX_CUDA_VISIBLE_DEVICES"])])
"""
RUN = (sys.executable, "-m", "ringleader", "run", "--no-prefix", "-n", "2")
HOROVODRUN = (str(Path(sys.executable).with_name("horovodrun")), "-np", "2")


@pytest.mark.parametrize(
    ("launcher", "visible", "seen"),
    [
        ((*RUN, "--min-np", "2"), "0,1", {("0,1", "0"), ("0,1", "1")}),
        (HOROVODRUN, "0,1", {("0,1", "0"), ("0,1", "1")}),
        ((*RUN, "--own-gpu"), "GPU-a,GPU-b", {("GPU-a", "GPU-a"), ("GPU-b", "GPU-b")}),
        ((*RUN, "--share-gpus"), "3", {("3", "3")}),
    ],
    ids=["elastic", "horovodrun", "own", "shared"],
)
def test_a_rank_finds_its_own_gpu_by_its_local_rank(
    launcher: tuple[str, ...], visible: str, seen: set[tuple[str, str]]
) -> None:
    done = finished(
        [*launcher, sys.executable, "-c", SCRIPT],
        timeout=120,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": visible},
    )
    assert done.returncode == 0, done.stderr
    lines = [line[line.index("sees") :].split() for line in done.stdout.splitlines() if "sees" in line]
    assert len(lines) == 2 and {(line[1], line[3]) for line in lines} == seen, done.stdout
    assert all(line[3] == line[-1] for line in lines)


def test_ranks_beyond_the_gpus_are_refused_with_the_cure() -> None:
    done = finished(
        [*RUN, "true"], timeout=120, stdin=subprocess.DEVNULL, env={**os.environ, "CUDA_VISIBLE_DEVICES": "0"}
    )
    assert done.returncode == 2 and "--share-gpus" in done.stderr, done.stderr


# --- --profile --------------------------------------------------------------------------------------------

TRAIN = """\
import sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

dist.init_process_group("gloo")
rank = dist.get_rank()

class Slow(Dataset):
    def __len__(self):
        return int(sys.argv[1])

    def __getitem__(self, number):
        time.sleep(0.02 if rank == 0 else 0)
        return torch.ones(64)

model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(Slow(), batch_size=1):
    if rank == 1:
        time.sleep(0.1)
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""


def profiled(workplace, steps, *words, ranks=2, script=TRAIN):
    (workplace.tmp / "train.py").write_text(script)
    options = ("--profile", steps, "--profile-dir", "traces", "--json-file", "outcome.json")
    job = ("run", "-n", str(ranks), "--oversubscribe", *options, sys.executable, "train.py", *words)
    ended = workplace.run(*job, cwd=workplace.tmp)
    assert ended.returncode == 0, ended.stderr
    outcome = json.loads((workplace.tmp / "outcome.json").read_text())
    return outcome["profile"], ended.stderr.decode()


def test_a_sleeping_rank_and_a_slow_loader_are_told_apart(workplace):
    found, err = profiled(workplace, "4:9", "12")
    first, second = found["ranks"]
    assert found["steps"] == [4, 5, 6, 7, 8, 9]
    assert [first["rank"], second["rank"]] == [0, 1] and not found["on_gpu"]
    assert first["input"] > second["input"] and second["idle"] > first["idle"]
    assert first["waiting"] > second["waiting"] and first["waiting"] > first["exposed"]
    assert found["straggler"] == {"rank": 1, "part": "idle"}
    assert second["was_last"] > first["was_last"]
    assert [one["kind"] for one in found["collectives"]] == ["all_reduce"]
    assert "rank 1 was the last to enter " in err and "traces are in " in err
    assert sorted(path.name for path in (workplace.tmp / "traces").iterdir()) == [
        "rank-0.json.gz", "rank-1.json.gz",
    ]  # fmt: skip
    again = workplace.run("analyze", "traces", "--json", cwd=workplace.tmp)
    values = {name: value for name, value in found.items() if name not in ("wanted", "directory")}
    assert json.loads(again.stdout) == values, again.stderr
    refused = workplace.run("run", "--profile", "2:3", "--profile-dir", "traces", "true", cwd=workplace.tmp)
    assert refused.returncode == 2 and b"has traces of another job" in refused.stderr


def test_a_script_without_pytorch_says_so(workplace):
    found, err = profiled(workplace, "2:3", ranks=1, script="print('hello')")
    assert found.keys() == {"wanted", "directory"}
    assert "--profile 2:3: nothing was recorded: no rank imported torch.optim" in err


# --- --as-horovod -----------------------------------------------------------------------------------------

AS_HOROVOD = """
import pickle
import subprocess
import sys

import torch
import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.mpi_ops import synchronize

torch.set_num_threads(1)
hvd.init()
import ringleader.torch
assert hvd is ringleader.torch

torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Average)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
weights = hvd.allgather(model.weight.detach().reshape(1, -1))
assert all(torch.equal(row, weights[0]) for row in weights)
assert synchronize(hvd.allreduce_async(torch.ones(3), op=hvd.Sum)).tolist() == [hvd.size()] * 3
try:
    hvd.allreduce(torch.ones(2 + hvd.rank()), name="unequal")
    print("no error")
except HorovodInternalError:
    pass
below = "import horovod.common.util as u; print(u.__name__)"
child = subprocess.run([sys.executable, "-c", below], capture_output=True, text=True)
print("trained on", hvd.size(), type(optimizer).__name__, child.stdout.strip(), flush=True)
"""
SAID = ["trained on 2 SGD ringleader.adapters.util"] * 2


@pytest.mark.torch
@pytest.mark.smoke
def test_a_job_as_horovod(workplace):
    script = workplace.tmp / "train.py"
    script.write_text(AS_HOROVOD)
    words = ("--as-horovod", "--timeout", str(patience(75)), "-n", "2", "--oversubscribe", "--no-prefix")
    done = workplace.run("run", *words, "python", str(script))
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert done.stdout.decode().splitlines() == SAID


# --- ringleader.run, the function -------------------------------------------------------------------------


def test_results_come_in_rank_order():
    assert ringleader.run(lambda base: base + int(os.environ["RANK"]), (10,), np=2, oversubscribe=True) == [
        10,
        11,
    ]


def test_exception_comes_back_as_itself():
    def bad():
        if os.environ["RANK"] == "1":
            raise LookupError("only here")
        threading.Event().wait(60)

    with pytest.raises(LookupError, match="only here") as caught:
        ringleader.run(bad, np=2, oversubscribe=True, quiet=True)
    assert "in bad" in str(caught.value.__cause__)
    assert caught.value.__notes__ == ["raised on rank 1 on localhost"]


def test_exception_that_cannot_travel_keeps_its_words():
    def bad():
        class Odd(Exception):
            def __init__(self, one, two):
                super().__init__(one)

        raise Odd("odd one", 2)

    with pytest.raises(RankError, match="odd one") as caught:
        ringleader.run(bad, np=1, quiet=True)
    assert "in bad" in str(caught.value.__cause__)


def test_result_that_cannot_be_pickled_is_a_clear_error():
    with pytest.raises(RankError, match="result cannot be pickled"):
        ringleader.run(threading.Lock, np=1, quiet=True)


def test_argument_that_cannot_be_pickled_is_a_request_error():
    with pytest.raises(RequestError, match="cannot be pickled"):
        ringleader.run(print, (threading.Lock(),), np=1)


def test_sys_exit_and_none():
    with pytest.raises(RankError) as caught:
        ringleader.run(lambda: sys.exit(4), np=1, quiet=True)
    assert caught.value.exit_code == 4
    assert ringleader.run(lambda: None, np=1) == [None]


def test_hosts_are_checked_first(tmp_path):
    log = tmp_path / "kernel.log"
    log.write_text("NVRM: Xid (PCI:0000:05:00): 79, pid=1, GPU has fallen off the bus.\n")
    with pytest.raises(RefusedError, match=r"kernel\.xid: Xid 79"):
        ringleader.run(os.getpid, np=1, check="quick", kernel_log=str(log))
    log.write_text("")
    assert len(ringleader.run(os.getpid, np=1, check="quick", kernel_log=str(log))) == 1
    with pytest.raises(RequestError, match="--check"):
        ringleader.run(os.getpid, np=1, check="slow")
    with pytest.raises(RequestError, match="--spare-hosts"):
        ringleader.run(os.getpid, hosts="h1,h2", check="quick", spare_hosts=2)
