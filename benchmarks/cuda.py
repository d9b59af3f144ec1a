"""Everything that needs a GPU, in one command: `make bench-cuda`. Prints "no GPU" where there is none.

    python benchmarks/cuda.py

Steps against plain PyTorch (an MLP, ResNet-50, a small GPT; compiled and not), memory with and without
``shard=True``, the contract of all operations on CUDA tensors: one GPU for each rank where there are two, and
two ranks on one GPU, through the host. Ends with exit code 1 where a part failed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
PYTHON = sys.executable
PARTS: dict[str, list[str]] = {
    "steps against plain PyTorch": [PYTHON, str(HERE / "cuda_step.py")],
    "the same, compiled": [PYTHON, str(HERE / "cuda_step.py"), "--compile"],
    "memory": [PYTHON, str(HERE / "cuda_memory.py")],
    "contract on CUDA": [
        PYTHON, "-m", "pytest", "-q", "-rs", "-k", "gpu",
        str(HERE.parent / "tests/collectives/test_distributed.py"),
    ],
}  # fmt: skip


def main() -> None:
    """Run all parts and say how they ended."""
    if not torch.cuda.is_available():
        print("no GPU")
        return
    codes = {}
    for name, command in PARTS.items():
        print(f"== {name}", flush=True)
        codes[name] = subprocess.run(command, check=False, cwd=HERE.parent).returncode
    print("\n".join(f"{'failed' if code else 'done'}: {name}" for name, code in codes.items()))
    sys.exit(int(any(codes.values())))


if __name__ == "__main__":
    main()
