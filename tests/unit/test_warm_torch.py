"""Ranks that are forked from a Python that has imported PyTorch: they train, soon, each by itself."""

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.host_agent_world import Launcher

from ringleader.launch.elastic.preloaded_modules import warm_start
from ringleader.launch.host_probe.host_answer import is_python

pytest.importorskip("torch")
pytestmark = [pytest.mark.process, pytest.mark.torch]
SCRIPT = """
import time
began = time.monotonic()
import json, sys
import torch
import ringleader.torch as hvd
from torch.utils.data import DataLoader, TensorDataset

def main():
    print("first line", flush=True)
    imported = time.monotonic() - began
    before = len(sys.modules)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = DataLoader(TensorDataset(torch.ones(64, 256)), batch_size=8, num_workers=2)
    total = 0.0
    for (batch,) in data:
        model(batch).square().mean().backward()
        optimizer.step()
        total += batch.sum().item()
    large = torch.ones(700, 700) @ torch.ones(700, 700)  # on several threads
    seconds = time.monotonic() - began
    words = {"seed": torch.initial_seed(), "total": total, "large": large[0, 0].item(), "seconds": seconds}
    words |= {"threads": torch.get_num_threads(), "blas": blas_threads()}
    print(json.dumps(words | {"imported": imported}))

def blas_threads():
    import ctypes
    from ringleader.agents.forked_script import OPENBLAS_NAMES
    paths = {line.split(None, 5)[-1].strip() for line in open("/proc/self/maps") if "openblas" in line}
    for library in map(ctypes.CDLL, paths):
        for name in OPENBLAS_NAMES:
            if hasattr(library, name):
                return getattr(library, name.replace("_set_", "_get_"))()

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    made = Launcher(tmp_path)
    made.begin()
    yield made
    made.bye()
    made.close()


def test_ranks_train_and_their_first_line_comes_soon(launcher: Launcher, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    found = warm_start(
        ("python", "train.py"),
        lambda name: SCRIPT.encode() if name == "train.py" else None,
        is_python=is_python,
    )
    launcher.prepare(found.modules, env={"OMP_NUM_THREADS": "1"})  # as `elastic_hosts` has it
    env = {"OMP_NUM_THREADS": "2"}
    prepared = launcher.until("prepared")
    assert tuple(prepared.modules) == found.modules
    assert found.modules[:3] == ("torch", "torch._dynamo", "ringleader.torch")
    seconds, answers = [], []
    for incarnation in range(5):
        ordered = time.monotonic()
        rank = launcher.start(incarnation, str(path), env=env)
        assert launcher.finish(rank)["exit_code"] == 0, rank.stderr.decode()
        seconds.append(rank.first_output_at - ordered)
        answers.append(json.loads(rank.stdout.splitlines()[1]))
    assert all((one["total"], one["large"], one["threads"]) == (64 * 256, 700, 2) for one in answers)
    assert all(one["blas"] in (2, None) for one in answers)  # None: NumPy has another one
    assert len({one["seed"] for one in answers}) == 5
    print(
        f"imports {prepared.seconds:.1f} s; order to first line "
        f"{statistics.median(seconds) * 1000:.0f} ms (median of 5, longest {max(seconds) * 1000:.0f}); "
        f"first step's imports and 8 steps {statistics.median(one['seconds'] for one in answers):.2f} s"
    )
