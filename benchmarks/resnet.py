"""Time of a training step of ResNet-18 between two hosts of a lab, with bfloat16 on the wire: ours and DDP's.

    python benchmarks/resnet.py --lab NAME [--rounds 6] [--image 224]

``one bucket`` is ours without overlap: nothing travels before backward has ended. ``uncoupled`` ranks
exchange nothing, so what a step takes longer than theirs is exposed communication. All arms run in the same
processes in turns; after the first step of each, ours and DDP's parameters are compared.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from _pairs import best_ratio, context, in_turns, join_gloo, keep, part, ratio
from ringleader.lab import saved_state
from rows import required

BATCH = 8


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        """Take the numbers of channels; a ``stride`` halves the image."""
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        self.shortcut = nn.Sequential()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Add both ways."""
        return nn.functional.relu(self.body(images) + self.shortcut(images))


def resnet18() -> nn.Module:
    """Return the net of He et al. (arXiv 1512.03385), table 1: 11.7 million parameters."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    before = 64
    for after in (64, 128, 256, 512):
        layers += [Block(before, after, 1 if after == before else 2), Block(after, after, 1)]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def arms_for(image: int) -> tuple[dict[str, Callable[[], None]], dict[str, nn.Module]]:
    """Return the steps and the nets they train."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    import ringleader.torch as hvd

    nets: dict[str, nn.Module] = {}
    arms: dict[str, Callable[[], None]] = {}
    torch.manual_seed(hvd.rank())
    batch, target = torch.randn(BATCH, 3, image, image), torch.randint(0, 1000, (BATCH,))
    for name in ("ringleader", "one bucket", "DDP on Gloo", "uncoupled"):
        torch.manual_seed(7)
        net = nets[name] = resnet18()
        forward: nn.Module = net
        optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
        if name == "DDP on Gloo":
            forward = nn.parallel.DistributedDataParallel(net)
            # Under its own name PyTorch refuses the hook without a GPU, though Gloo carries bfloat16.
            forward.register_comm_hook(None, lambda words, bucket: bf16_compress_hook(words, bucket))
        elif name != "uncoupled":
            optimizer = hvd.DistributedOptimizer(
                optimizer,
                net.named_parameters(),
                compression=hvd.Compression.bf16,
                bucket_cap_mb=1e6 if name == "one bucket" else None,
            )

        def step(forward: nn.Module = forward, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(forward(batch), target).backward()
            optimizer.step()

        arms[name] = step
    return arms, nets


def check(arms: dict[str, Callable[[], None]], nets: dict[str, nn.Module]) -> None:
    """Do one step of each and compare: bfloat16 has 8 bits, and a step moves by 0.001 gradients."""
    for arm in arms.values():
        arm()
    for name in ("ringleader", "one bucket"):
        pairs = zip(nets[name].parameters(), nets["DDP on Gloo"].parameters(), strict=True)
        for mine, other in pairs:
            assert torch.allclose(mine, other, atol=2e-4, rtol=1e-3), name


def ranks(args: argparse.Namespace) -> None:
    """Run as one of the ranks."""
    import ringleader.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    join_gloo()
    arms, nets = arms_for(args.image)
    check(arms, nets)
    times = in_turns(arms, meet=hvd.barrier, rounds=args.rounds, block=1)
    if hvd.rank() == 0:
        medians = {name: statistics.median(values) for name, values in times.items()}
        print(f"ResNet-18, batch {BATCH} of {args.image}², {hvd.size()} ranks on as many hosts")
        print("    " + ", ".join(f"{name} {value * 1e3:.0f} ms" for name, value in medians.items()))
        faster = ratio(times["DDP on Gloo"], times["ringleader"])
        print(required("ResNet-18, 1 Gbit/s, bf16 on the wire", faster))
        print(f"    fastest rounds: {best_ratio(times['DDP on Gloo'], times['ringleader']):.2f}")
        exposed = {name: medians[name] - medians["uncoupled"] for name in medians if name != "uncoupled"}
        words = ", ".join(f"{name} {value * 1e3:.0f} ms" for name, value in exposed.items())
        print(f"    exposed communication: {words}\n    {context()}")
        keep("resnet", {"seconds": times, "exposed": exposed, "DDP/ours": faster, "image": args.image})
    part()


def main() -> None:
    """Run on two hosts of a lab."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lab")
    parser.add_argument("--rank", action="store_true", help="this process is one of the ranks")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--image", type=int, default=224)
    args = parser.parse_args()
    if args.rank:
        ranks(args)
        return
    lab = saved_state.current(args.lab)
    hosts = ",".join(f"{host.name}:1" for host in lab.hosts[:2])
    command = [sys.executable, "-m", "ringleader", "run", "--ssh-config", lab.ssh_config, "-H", hosts]
    command += ["--no-prefix", "--timeout", "600", sys.executable, str(Path(__file__).resolve()), "--rank"]
    command += ["--rounds", str(args.rounds), "--image", str(args.image)]
    sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
