"""Data-parallel training as one writes it for torchrun: torch.distributed and DistributedDataParallel alone.

torchrun --nproc-per-node 2 ddp_torchrun.py
"""

from __future__ import annotations

import hashlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SAMPLES, FEATURES, BATCH_SIZE, EPOCHS = 4096, 32, 64, 3


def make_data() -> TensorDataset:
    """Return samples whose label is a fixed non-linear function of their features."""
    generator = torch.Generator().manual_seed(7)
    features = torch.randn(SAMPLES, FEATURES, generator=generator)
    labels = (features[:, 0] * features[:, 1] > features[:, 2]).long()
    return TensorDataset(features, labels)


def main() -> None:
    """Train and print the loss of each epoch; then every rank prints a hash of its parameters."""
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)

    torch.manual_seed(rank)  # DDP starts all ranks from rank 0's parameters
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = make_data()
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=BATCH_SIZE, sampler=sampler)

    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        loss_sum = torch.zeros((), device=device)
        for features, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(features.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            loss_sum += loss.detach()
        dist.all_reduce(loss_sum)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss_sum.item() / len(loader) / size:.4f}", flush=True)

    digest = hashlib.sha256()
    for tensor in model.module.state_dict().values():
        digest.update(tensor.cpu().numpy().tobytes())
    print(f"parameters of rank {rank} of {size}: {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
