"""Train a residual net on a folder of pictures: DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg.

    ringleader run -n 2 python examples/imagenet_folder.py --data-dir DIR --model resnet18
    ringleader run -n 4 python examples/imagenet_folder.py --data-dir DIR --checkpoint net.pt --resume

Rank 0 stores a checkpoint after each epoch, and with ``--resume`` reads it and gives it to the others: no
other rank needs to see the file. The learning rate grows with the number of ranks, is reached over
``--warmup-epochs``, and falls tenfold after epochs 30, 60 and 80 (Goyal et al., 2017); it does not depend on
``--epochs``, so that a run may be lengthened.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import ringleader
import ringleader.torch as hvd
from jpegs import BadDataError, Loader, Pictures
from models import MODELS
from together import ShardedBatches, stop_if_any, total


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="holds train/CLASS and val/CLASS")
    parser.add_argument(
        "--model", choices=[name for name in MODELS if name != "inception3"], default="resnet50"
    )
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=32, help="pictures per rank and step (32)")
    parser.add_argument("--lr", type=float, default=0.0125, help="learning rate of one rank (0.0125)")
    parser.add_argument("--warmup-epochs", type=float, default=5)
    parser.add_argument("--workers", type=int, default=2, help="processes per rank that read pictures (2)")
    parser.add_argument("--checkpoint", type=Path, help="file that rank 0 writes after each epoch")
    parser.add_argument("--resume", action="store_true", help="continue from --checkpoint where it exists")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for name, least in (("epochs", 1), ("batch_size", 1), ("workers", 0), ("image_size", 32)):
        if getattr(args, name) < least:
            parser.error(f"--{name.replace('_', '-')} {getattr(args, name)}: at least {least}")
    if args.resume and not args.checkpoint:
        parser.error("--resume wants --checkpoint FILE")
    return args


def open_data(args: argparse.Namespace) -> tuple[Pictures, Pictures]:
    """Return the pictures to train and to judge with; a fault ends all ranks."""
    fault = train = val = None
    try:
        train = Pictures(args.data_dir / "train", size=args.image_size, seed=args.seed)
        val = Pictures(args.data_dir / "val", size=args.image_size, seed=None)
        if train.classes != val.classes:
            only = sorted(set(train.classes) ^ set(val.classes))
            fault = f"{args.data_dir}: train and val differ in their classes: {', '.join(only)}"
        elif len(train) < args.batch_size * hvd.size():
            fault = (
                f"{args.data_dir}/train: {len(train)} pictures, fewer than {hvd.size()} x {args.batch_size}"
            )
    except (BadDataError, OSError) as error:
        fault = error
    if args.device == "cuda" and not torch.cuda.is_available():
        fault = "--device cuda: PyTorch finds no GPU here"
    stop_if_any(fault)
    assert train is not None and val is not None
    return train, val


def restore(
    args: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer, classes: list
) -> int:
    """Bring all ranks to rank 0's state, after its checkpoint if there is one; return the epoch to do."""
    epoch, fault = 0, None
    if args.resume and hvd.rank() == 0 and args.checkpoint.exists():
        try:
            stored = torch.load(args.checkpoint, map_location="cpu", weights_only=True)
            if (stored["model"], stored["classes"]) != (args.model, classes):
                raise ValueError(f"it is of {stored['model']} with {len(stored['classes'])} other classes")
            model.load_state_dict(stored["parameters"])
            optimizer.load_state_dict(stored["optimizer"])
            epoch = stored["epoch"]
        except Exception as error:  # whatever is wrong with the file, the user hears which file it is
            fault = f"{args.checkpoint}: cannot be resumed from: {str(error).splitlines()[0]}"
    stop_if_any(fault)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return hvd.broadcast_object(epoch, root_rank=0)


def store(
    args: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer, **words: object
) -> None:
    """Write the checkpoint beside its place first: a run that is killed leaves the old one whole."""
    state = {
        "model": args.model,
        "parameters": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        **words,
    }
    new = args.checkpoint.with_name(args.checkpoint.name + ".new")
    torch.save(state, new)
    new.replace(args.checkpoint)


def learning_rate(epoch: float, args: argparse.Namespace) -> float:
    """Return the rate at a point in epochs: rising from one rank's to all ranks', then in steps down."""
    if epoch < args.warmup_epochs:
        return args.lr * (1 + (hvd.size() - 1) * epoch / args.warmup_epochs)
    return args.lr * hvd.size() * 0.1 ** sum(epoch >= drop for drop in (30, 60, 80))


@torch.no_grad()
def evaluate(model: nn.Module, loader: Loader, count: int, args: argparse.Namespace) -> tuple[float, float]:
    """Return top-1 and top-5 in percent over all pictures; each rank judges its share."""
    for (
        name,
        buffer,
    ) in model.named_buffers():  # each rank's batches gave their own running means: take the mean
        if buffer.is_floating_point():
            hvd.allreduce_(buffer, name=f"buffer.{name}")
    model.eval()
    mine = list(range(count))[hvd.rank() :: hvd.size()]
    parts = [mine[start : start + args.batch_size] for start in range(0, len(mine), args.batch_size)]
    first = fifth = 0
    for pictures, labels in loader.batches(0, parts):
        scores = model(pictures.to(args.device, non_blocking=True)).cpu()
        hits = scores.topk(min(5, scores.shape[1]), dim=1).indices == labels.unsqueeze(1)
        first, fifth = first + int(hits[:, :1].sum()), fifth + int(hits.sum())
    model.train()
    first, fifth, judged = total(first, fifth, len(mine))
    return 100 * first / judged, 100 * fifth / judged


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: Loader,
    shards: ShardedBatches,
    epoch: int,
    args,
) -> float:
    """Train one epoch; return the mean loss over all ranks."""
    loss_sum = 0.0
    indices = [mine for mine, _ in shards.epoch(epoch)]
    for step, (pictures, labels) in enumerate(loader.batches(epoch, indices)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(epoch + step / shards.per_epoch, args)
        optimizer.zero_grad()
        scores = model(pictures.to(args.device, non_blocking=True))
        loss = functional.cross_entropy(scores, labels.to(args.device, non_blocking=True))
        loss.backward()
        optimizer.step()
        loss_sum += loss.item()
        ringleader.progress(samples=len(labels))
    return total(loss_sum)[0] / shards.per_epoch / hvd.size()


def main() -> None:
    """Train, judge and store, epoch by epoch; rank 0 prints a line for each."""
    args = parse()
    hvd.init()
    train, val = open_data(args)
    if args.device == "cuda":
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    torch.manual_seed(args.seed)
    model = MODELS[args.model].build(len(train.classes)).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-5)
    first = restore(args, model, optimizer, train.classes)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    pin = args.device == "cuda"
    train_loader = Loader(train, workers=args.workers, pin=pin)
    val_loader = Loader(val, workers=args.workers, pin=pin)
    # A last batch that is not full is left out; the order is new in each epoch, so no picture always is.
    shards = ShardedBatches(
        samples=len(train), batch_size=args.batch_size, rank=hvd.rank(), size=hvd.size(), seed=args.seed,
        drop_last=True,
    )  # fmt: skip
    if hvd.rank() == 0:
        begun = f", resumed after epoch {first}" if first else ""
        print(
            f"{len(train)} + {len(val)} pictures, {len(train.classes)} classes, {hvd.size()} rank(s){begun}"
        )
    try:
        for epoch in range(first, args.epochs):
            began = time.perf_counter()
            loss = train_epoch(model, optimizer, train_loader, shards, epoch, args)
            rate = shards.per_epoch * shards.global_batch / (time.perf_counter() - began)
            top1, top5 = evaluate(model, val_loader, len(val), args)
            if hvd.rank() == 0:
                if args.checkpoint:
                    store(args, model, optimizer, epoch=epoch + 1, classes=train.classes)
                figures = f"loss {loss:.4f}, {rate:.1f} images/s, top-1 {top1:.2f}%, top-5 {top5:.2f}%"
                print(f"epoch {epoch + 1}: {figures}", flush=True)
    except (BadDataError, hvd.HorovodInternalError) as error:  # one rank's picture; the others miss that rank
        sys.exit(f"{sys.argv[0]}: {error}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
