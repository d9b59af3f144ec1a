"""Train with FSDP2: every rank holds one shard of each parameter. torch.distributed alone, as under torchrun.

ringleader run -n 2 python examples/libraries/fsdp2.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

FEATURES, EPOCHS = 32, 3


def make_data() -> TensorDataset:
    """Return samples whose label is a fixed function of their features."""
    features = torch.randn(2048, FEATURES, generator=torch.Generator().manual_seed(7))
    return TensorDataset(features, (features[:, 0] > features[:, 1]).long())


def main() -> None:
    """Train; print the loss of each epoch and how much of the model each rank holds."""
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", dist.get_node_local_rank())
        torch.cuda.set_device(device)
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)  # FSDP2 doesn't broadcast parameters: build the same model on each rank
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    mesh = dist.init_device_mesh(device.type, (size,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    data = make_data()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for features, labels in loader:
            loss = nn.functional.cross_entropy(model(features.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {total.item() / len(loader) / size:.4f}", flush=True)

    held = sum(parameter.to_local().numel() for parameter in model.parameters())
    whole = sum(parameter.numel() for parameter in model.parameters())
    print(f"rank {rank} of {size} holds {held} of {whole} parameters", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
