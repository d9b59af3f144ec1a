"""Train with Lightning. `devices` is the number of ranks on each host, `num_nodes` the number of hosts.

ringleader run -n 2 python examples/libraries/with_lightning.py
"""

from __future__ import annotations

import os

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ringleader

FEATURES = 32


def make_data() -> TensorDataset:
    """Return samples whose label is a fixed function of their features."""
    features = torch.randn(2048, FEATURES, generator=torch.Generator().manual_seed(7))
    return TensorDataset(features, (features[:, 0] > features[:, 1]).long())


class Classifier(lightning.LightningModule):
    """Two layers; prints the loss of each epoch from rank 0."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 2))

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        """Return the loss of one batch."""
        features, labels = batch
        loss = nn.functional.cross_entropy(self.net(features), labels)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        ringleader.progress(samples=len(features))
        return loss

    def on_train_epoch_end(self) -> None:
        """Print the mean over all ranks."""
        if self.global_rank == 0:
            loss = self.trainer.callback_metrics["loss"].item()
            print(f"epoch {self.current_epoch + 1}: loss {loss:.4f}", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main() -> None:
    """Train; then every rank prints its share of the batches and a checksum of its parameters."""
    model = Classifier()
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    trainer = lightning.Trainer(
        accelerator="auto",
        devices=local_size,
        num_nodes=int(os.environ.get("WORLD_SIZE", "1")) // local_size,
        strategy="ddp",
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(make_data(), batch_size=64, shuffle=True))
    checksum = sum(parameter.double().sum().item() for parameter in model.parameters())
    rank, size, batches = trainer.global_rank, trainer.world_size, trainer.num_training_batches
    print(f"rank {rank} of {size}: {batches} batches, checksum {checksum:.12f}", flush=True)


if __name__ == "__main__":
    main()
