"""Memory of training on GPUs with the state on every rank, and with a part of it on each (``shard=True``).

    python benchmarks/cuda_memory.py [--ranks 2] [--device cuda]

Ranks share a device where there are fewer: then their tensors travel through the host. Printed for each rank
0 are the bytes of the optimizer's state, of which a rank must have at most 1.1 times its part, and what the
device has given out at most. Checked: both train the same parameters.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch

import ringleader.torch as hvd
from _pairs import context, under_mpirun, verdict
from ringleader.bench.training.models import Mlp

STEPS = 3


def train(device: torch.device, *, shard: bool) -> tuple[list[torch.Tensor], int, int]:
    """Make some steps; return the parameters, the bytes of the state here, and the most that was taken."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    model = Mlp(10).to(device)
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    more: dict[str, Any] = {"shard": True} if shard else {}
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters(), **more)
    for step in range(STEPS):
        torch.manual_seed(100 * step + hvd.rank())
        optimizer.zero_grad()
        model(torch.randn(64, 1024, device=device)).square().mean().backward()
        optimizer.step()
    tensors = [one for state in optimizer.state.values() for one in state.values() if torch.is_tensor(one)]
    taken = optimizer.state_bytes() if shard else sum(one.nbytes for one in tensors)
    most = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    return [one.detach().clone() for one in model.parameters()], taken, most


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try the benchmark itself")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("there is no GPU for PyTorch here")
    if under_mpirun(args.ranks, __file__, sys.argv[1:]):
        return
    hvd.init()
    if args.device == "cuda":
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    device = torch.device(args.device)
    (whole, whole_bytes, whole_most), (parts, part_bytes, part_most) = (
        train(device, shard=shard) for shard in (False, True)
    )
    if not all(torch.allclose(one, two, rtol=1e-4, atol=1e-5) for one, two in zip(whole, parts, strict=True)):
        sys.exit("the parameters differ with shard=True")
    if hvd.rank() == 0:
        print(f"AdamW, MLP of 25 MB, {hvd.size()} ranks on {args.device}")
        print(f"    state {whole_bytes / 1e6:.1f} MB, in parts {part_bytes / 1e6:.1f} MB")
        print(f"    most memory {whole_most / 1e6:.1f} MB, in parts {part_most / 1e6:.1f} MB")
        required = 1.1 / hvd.size()
        print(verdict("state per rank over a replica's", part_bytes / whole_bytes, required, at_most=True))
        print(f"    {context()}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
