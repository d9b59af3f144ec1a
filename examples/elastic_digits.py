"""Train on handwritten digits, and resume when ranks fail, leave or join.

    python examples/elastic_digits.py                                       one process
    ringleader run -n 2 --min-np 1 python examples/elastic_digits.py        two ranks; one is enough
    ringleader run -n 2 --min-np 1 python examples/elastic_digits.py --fail-at 30    rank 1 kills itself

What makes it elastic: the state holds everything that training continues from, `state.commit()` keeps it, and
everything in which ranks meet is inside of the function that ``hvd.elastic.run`` calls again after a change.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import ringleader.torch as hvd
from digits import load

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data-dir", type=Path, help="MNIST's idx files, .gz or not; else scikit-learn's digits")
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--batch-size", type=int, default=32, help="samples per rank and step (32)")
parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one rank (0.001)")
parser.add_argument("--fail-at", type=int, help="rank 1 kills itself at this step, once")
options = parser.parse_args()

hvd.init()
digits = load(options.data_dir).converted(torch.from_numpy)
dataset = TensorDataset(digits.train_images, digits.train_labels)
sampler = hvd.elastic.ElasticSampler(dataset)
loader = DataLoader(dataset, batch_size=options.batch_size, sampler=sampler)
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = hvd.DistributedOptimizer(
    torch.optim.Adam(model.parameters(), lr=options.lr), named_parameters=model.named_parameters()
)
state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, step=0, failed=False)


def fit_learning_rate() -> None:
    """N ranks take N times as many samples a step: the rate grows with them."""
    for group in optimizer.param_groups:
        group["lr"] = options.lr * hvd.size()


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """Train to the end of the last epoch; called again, with the state restored, after every change."""
    print(f"{hvd.size()} rank(s) continue in epoch {state.epoch} at step {state.step}", flush=True)
    while state.epoch < options.epochs:
        for batch, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            state.step += 1
            sampler.record_batch(batch, options.batch_size)
            if state.step == options.fail_at and not state.failed:
                state.failed = True
                state.save()  # kept, so that the next one knows
                if hvd.rank() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
            state.commit()
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        if hvd.rank() == 0:
            print(f"epoch {state.epoch}: {state.step} steps, loss {loss.item():.4f}", flush=True)


fit_learning_rate()
state.register_reset_callbacks([fit_learning_rate])
train(state)
with torch.no_grad():
    right = (model(digits.test_images).argmax(1) == digits.test_labels).sum().item()
if hvd.rank() == 0:
    print(f"test accuracy: {100 * right / len(digits.test_labels):.2f}% of {len(digits.test_labels)}")
