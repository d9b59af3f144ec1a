"""How many images a second a well-known net trains, on random images: no data set, no input pipeline.

    python examples/imagenet_synthetic.py --model resnet50 --batch-size 32
    ringleader run -n 2 python examples/imagenet_synthetic.py --model resnet18 --image-size 64

The lines are those of tf_cnn_benchmarks, printed by rank 0. A row is the rate of that one rank since the
warm-up (batch size over mean step time), ``+/-`` the standard deviation of its steps' rates over the square
root of their number, jitter 1.4826 times the median distance from their median. The last line is the rate of
all ranks together. ``total_loss`` is the cross entropy alone: weight decay is the optimizer's here.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

import ringleader
import ringleader.torch as hvd
from models import MODELS
from together import stop_if_any

CLASSES = 1000


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=list(MODELS), default="resnet50")
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step (32)")
    parser.add_argument("--num-batches", type=int, default=100, help="steps that count (100)")
    parser.add_argument("--num-warmup-batches", type=int, default=10, help="steps before those (10)")
    parser.add_argument("--display-every", type=int, default=10, help="steps between two lines (10)")
    parser.add_argument("--image-size", type=int, help="height and width in pixels (the model's own)")
    parser.add_argument("--fp16-allreduce", action="store_true", help="exchange gradients in half precision")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda for each rank's own GPU (cpu)")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of one rank (0.01)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for name, least in (
        ("batch_size", 1),
        ("num_batches", 1),
        ("num_warmup_batches", 0),
        ("display_every", 1),
    ):
        if getattr(args, name) < least:
            parser.error(f"--{name.replace('_', '-')} {getattr(args, name)}: at least {least}")
    args.image_size = args.image_size or MODELS[args.model].image_size
    return args


def find_fault(args: argparse.Namespace) -> str | None:
    """Say what in the options does not go with the model or with this machine."""
    smallest = MODELS[args.model].smallest
    if args.image_size < smallest:
        return f"--image-size {args.image_size}: {args.model} needs at least {smallest}"
    if args.batch_size == 1 and args.image_size == smallest and args.model.startswith("resnet"):
        return f"--image-size {smallest} leaves one pixel to normalize over: take --batch-size 2 or more"
    if args.device not in ("cpu", "cuda"):
        return f"--device {args.device}: cpu or cuda"
    if args.device == "cuda" and not torch.cuda.is_available():
        return "--device cuda: PyTorch finds no GPU here"
    return None


def describe(args: argparse.Namespace, model: nn.Module) -> None:
    """Print the options, as tf_cnn_benchmarks does before it starts."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    rows = (
        ("PyTorch", torch.__version__),
        ("Model", args.model),
        ("Dataset", "imagenet (synthetic)"),
        ("Mode", "training"),
        ("Batch size", f"{args.batch_size * hvd.size()} global"),
        ("", f"{args.batch_size} per device"),
        ("Image size", f"{args.image_size} x {args.image_size}"),
        ("Num batches", f"{args.num_batches}, {args.num_warmup_batches} to warm up"),
        ("Ranks", f"{hvd.size()}, {hvd.local_size()} on this host"),
        ("Device", f"{args.device}, {torch.get_num_threads()} thread(s)"),
        ("Parameters", f"{parameters:,}"),
        ("AllReduce", "fp16" if args.fp16_allreduce else "fp32"),
    )
    for name, value in rows:
        print(f"{name + ':' if name else '':13}{value}")
    print("==========", flush=True)


def loss_of(scores: torch.Tensor | tuple[torch.Tensor, torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy; Inception's second classifier counts 0.4, as it does in tf_cnn_benchmarks."""
    if isinstance(scores, tuple):
        return functional.cross_entropy(scores[0], labels) + 0.4 * functional.cross_entropy(scores[1], labels)
    return functional.cross_entropy(scores, labels)


def row(step: int, seconds: list[float], batch_size: int, loss: float) -> str:
    """Return tf_cnn_benchmarks' line for all steps since the warm-up."""
    rates = [batch_size / each for each in seconds]
    rate = batch_size / statistics.fmean(seconds)
    uncertainty = statistics.pstdev(rates) / math.sqrt(len(rates))
    middle = statistics.median(rates)
    jitter = 1.4826 * statistics.median([abs(each - middle) for each in rates])
    return f"{step}\timages/sec: {rate:.1f} +/- {uncertainty:.1f} (jitter = {jitter:.1f})\t{loss:.3f}"


def main() -> None:
    """Warm up, measure, print."""
    args = parse()
    hvd.init()
    stop_if_any(find_fault(args))
    device = torch.device(args.device)
    if args.device == "cuda":
        device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
    torch.manual_seed(args.seed)
    model = MODELS[args.model].build(CLASSES).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9, weight_decay=4e-5)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
    )
    torch.manual_seed(args.seed + hvd.rank())
    images = torch.randn(args.batch_size, 3, args.image_size, args.image_size, device=device)
    labels = torch.randint(0, CLASSES, (args.batch_size,), device=device)

    def step() -> float:
        optimizer.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        ringleader.progress(samples=args.batch_size)
        return loss.item()  # on a GPU this waits for the step to end

    say = print if hvd.rank() == 0 else lambda *_, **__: None
    if hvd.rank() == 0:
        describe(args, model)
    say("Running warm up", flush=True)
    for _ in range(args.num_warmup_batches):
        step()
    say("Done warm up")
    say("Step\tImg/sec\ttotal_loss", flush=True)
    seconds: list[float] = []
    began = time.perf_counter()
    for number in range(1, args.num_batches + 1):
        start = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - start)
        if number == 1 or number % args.display_every == 0:
            say(row(number, seconds, args.batch_size, loss), flush=True)
    elapsed = time.perf_counter() - began
    total = hvd.size() * args.num_batches * args.batch_size / elapsed
    say("-" * 64, f"total images/sec: {total:.2f}", "-" * 64, sep="\n", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
