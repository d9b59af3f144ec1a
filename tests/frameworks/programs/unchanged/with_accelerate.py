"""Hugging Face Accelerate with its own loader and scheduler. Nothing in here knows of Ringleader."""

import sys
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
samples = 16 * accelerator.num_processes * int(sys.argv[1])
data = DataLoader(TensorDataset(torch.randn(samples, 64), torch.randint(10, (samples,))), batch_size=16)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _step: 1.0)
model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
for features, labels in data:
    time.sleep(0.02)
    optimizer.zero_grad()
    accelerator.backward(nn.functional.cross_entropy(model(features), labels))
    optimizer.step()
    schedule.step()
accelerator.end_training()
