"""``run --profile`` with real jobs: steps of a plain DDP script are recorded and divided."""

import json
import sys

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
