"""Train with Hugging Face Accelerate, without `accelerate launch`.

ringleader run -n 2 python examples/libraries/with_accelerate.py
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES, EPOCHS = 32, 3


def make_data() -> TensorDataset:
    """Return samples whose label is a fixed function of their features."""
    features = torch.randn(2048, FEATURES, generator=torch.Generator().manual_seed(7))
    return TensorDataset(features, (features[:, 0] > features[:, 1]).long())


def main() -> None:
    """Train; rank 0 prints the loss of each epoch, then each rank its batches and a checksum."""
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(make_data(), batch_size=64, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for epoch in range(EPOCHS):
        total = torch.zeros((), device=accelerator.device)
        for features, labels in loader:
            loss = nn.functional.cross_entropy(model(features), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            total += loss.detach()
        mean = accelerator.reduce(total, reduction="mean").item() / len(loader)
        if accelerator.is_main_process:
            print(f"epoch {epoch + 1}: loss {mean:.4f}", flush=True)

    rank, size = accelerator.process_index, accelerator.num_processes
    checksum = sum(parameter.double().sum().item() for parameter in model.parameters())
    print(f"rank {rank} of {size}: {len(loader)} batches, checksum {checksum:.12f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
