"""Step times of one rank as the lines of tf_cnn_benchmarks. Pure.

From tensorflow/benchmarks, benchmark_cnn.py: of the steps since the warm-up, the rate is batch over the mean
step; ``+/-`` the standard deviation of the steps' rates over √n; jitter 1.4826 times the median distance from
their median. Rows are the rate of this process. The last line is that of all of them: the mean rate over the
whole time, times their number.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

HEADER = "Step\tImg/sec\ttotal_loss"
RULE = "-" * 64


def row(step: int, seconds: Sequence[float], batch: int, loss: float) -> str:
    """Return the row after ``step`` steps, which took so many seconds each."""
    rates = [batch / each for each in seconds]
    rate = batch / statistics.fmean(seconds)
    uncertainty = statistics.pstdev(rates) / math.sqrt(len(rates))
    middle = statistics.median(rates)
    jitter = 1.4826 * statistics.median([abs(each - middle) for each in rates])
    return f"{step}\timages/sec: {rate:.1f} +/- {uncertainty:.1f} (jitter = {jitter:.1f})\t{loss:.3f}"


def lines(
    seconds: Sequence[float], losses: Sequence[float], *, batch: int, ranks: int, every: int = 10
) -> list[str]:
    """Return everything after the configuration: rows of the first step and every tenth, and the total."""
    shown = [n for n in range(1, len(seconds) + 1) if n == 1 or n % every == 0]
    rows = [row(n, seconds[:n], batch, losses[n - 1]) for n in shown]
    total = ranks * batch * len(seconds) / sum(seconds)
    return ["Done warm up", HEADER, *rows, RULE, f"total images/sec: {total:.2f}", RULE]
