"""Train a small language model with Transformers' Trainer. The model is new and the data are made here.

ringleader run -n 2 python examples/libraries/with_transformers.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainingArguments

LENGTH, WORDS = 16, 32


class Counting(Dataset[dict[str, torch.Tensor]]):
    """Sequences that count up from some number, modulo the vocabulary."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(LENGTH) + index) % WORDS
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    """Train; rank 0 prints the loss of each epoch, then each rank its batches and a checksum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output-dir", type=Path, default=Path("out"), help="for checkpoints")
    on_gpu = torch.cuda.is_available()
    arguments = TrainingArguments(
        output_dir=str(parser.parse_args().output_dir),
        num_train_epochs=3,
        per_device_train_batch_size=16,
        learning_rate=3e-3,
        use_cpu=not on_gpu,
        ddp_backend=None if on_gpu else "gloo",
        save_strategy="no",
        logging_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
    )
    config = GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=1, n_head=2)
    trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Counting())
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    rank, size = arguments.process_index, arguments.world_size
    if rank == 0:
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        for epoch, loss in enumerate(losses, 1):
            print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
    batches = len(trainer.get_train_dataloader())
    checksum = sum(parameter.double().sum().item() for parameter in trainer.model.parameters())
    print(f"rank {rank} of {size}: {batches} batches, checksum {checksum:.12f}", flush=True)


if __name__ == "__main__":
    main()
