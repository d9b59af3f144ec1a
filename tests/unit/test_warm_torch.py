"""Ranks that are forked from a Python that has imported PyTorch: they train, soon, each by itself."""

import json

import pytest
from tests.unit.host_agent_world import Launcher

from ringleader.launch.elastic.preloaded_modules import warm_start
from ringleader.launch.host_probe.host_answer import is_python

pytest.importorskip("torch")
pytestmark = [pytest.mark.process, pytest.mark.torch]
SCRIPT = """
import json
import torch
import ringleader.torch as hvd
from torch.utils.data import DataLoader, TensorDataset

def main():
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = DataLoader(TensorDataset(torch.ones(64, 256)), batch_size=8, num_workers=2)
    total = 0.0
    for (batch,) in data:
        model(batch).square().mean().backward()
        optimizer.step()
        total += batch.sum().item()
    large = torch.ones(700, 700) @ torch.ones(700, 700)  # on several threads
    words = {"seed": torch.initial_seed(), "total": total, "large": large[0, 0].item()}
    print(json.dumps(words | {"threads": torch.get_num_threads(), "blas": blas_threads()}))

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
def launcher(tmp_path):
    made = Launcher(tmp_path)
    made.begin()
    yield made
    made.bye()
    made.close()


def test_ranks_train_and_their_first_line_comes_soon(launcher, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    found = warm_start(("python", "train.py"), {"train.py": SCRIPT.encode()}.get, is_python=is_python)
    launcher.prepare(found.modules, env={"OMP_NUM_THREADS": "1"})  # as `elastic_hosts` has it
    assert tuple(launcher.until("prepared").modules) == found.modules
    assert found.modules[:3] == ("torch", "torch._dynamo", "ringleader.torch")
    answers = []
    for incarnation in range(3):
        rank, ended = launcher.run(incarnation, str(path), env={"OMP_NUM_THREADS": "2"})
        assert ended["exit_code"] == 0, rank.stderr.decode()
        answers.append(json.loads(rank.stdout))
    assert all((one["total"], one["large"], one["threads"]) == (64 * 256, 700, 2) for one in answers)
    assert all(one["blas"] in (2, None) for one in answers)  # None: NumPy has another one
    assert len({one["seed"] for one in answers}) == 3
