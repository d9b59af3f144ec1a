"""Least squares of a few dozen unknowns, in plain Python. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import mul

Matrix = list[list[float]]
_ROUNDS = 40
_FARTHEST = 12.0
"""No unknown goes farther from zero: they are in their standard deviations."""


def minimise(
    residuals: Callable[[Sequence[float]], list[float]],
    slopes: Callable[[Sequence[float]], Matrix],
    start: Sequence[float],
) -> list[float]:
    """Return where the sum of squares of ``residuals`` is least, as found from ``start`` (Levenberg 1944).

    ``slopes``: a row for each residual, a column for each unknown.
    """
    count = len(start)
    place, damping = list(start), 1e-2
    now = residuals(place)
    rows = slopes(place)
    for _ in range(_ROUNDS):
        normal = normal_matrix(rows, count)
        gradient = [sum(row[i] * r for row, r in zip(rows, now, strict=True)) for i in range(count)]
        for i in range(count):
            normal[i][i] *= 1 + damping
        step = [-value for value in _solved(cholesky(normal), gradient)]
        there = [max(-_FARTHEST, min(_FARTHEST, a + b)) for a, b in zip(place, step, strict=True)]
        then = residuals(there)
        gain = square(now) - square(then)
        if gain <= 0:
            damping *= 10
            if damping > 1e8:
                break
            continue
        place, now, damping = there, then, damping / 10
        if gain < 1e-5 * (1 + square(now)):
            break
        rows = slopes(place)
    return place


def square(values: Sequence[float]) -> float:
    """Return the sum of squares."""
    return sum(value * value for value in values)


def normal_matrix(rows: Matrix, count: int) -> Matrix:
    """Return the product of the transposed rows and the rows; ``count``: columns."""
    found = [[0.0] * count for _ in range(count)]
    for row in rows:
        present = [(i, value) for i, value in enumerate(row) if value]
        for i, a in present:
            line = found[i]
            for j, b in present:
                line[j] += a * b
    return found


def inverse(matrix: Matrix) -> Matrix:
    """Return the inverse of a positive definite matrix."""
    lower, count = cholesky(matrix), len(matrix)
    return [_solved(lower, [1.0 if i == j else 0.0 for j in range(count)]) for i in range(count)]


def _solved(lower: Matrix, right: Sequence[float]) -> list[float]:
    """Return x of ``lower`` · transposed ``lower`` · x = ``right``."""
    between: list[float] = []
    for row, value in zip(lower, right, strict=True):
        between.append((value - sum(map(mul, row, between))) / row[-1])
    found = between
    for i in range(len(lower) - 1, -1, -1):
        found[i] /= lower[i][i]
        row, value = lower[i], found[i]
        for j in range(i):
            found[j] -= row[j] * value
    return found


def cholesky(matrix: Sequence[Sequence[float]]) -> Matrix:
    """Return the lower triangle whose product with its transpose is a positive definite matrix."""
    lower: Matrix = []
    for i, row in enumerate(matrix):
        made: list[float] = []
        for j in range(i):
            made.append((row[j] - sum(map(mul, made, lower[j]))) / lower[j][j])
        lower.append([*made, math.sqrt(max(1e-300, row[i] - square(made)))])
    return lower


def log_determinant(matrix: Matrix) -> float:
    """Return the logarithm of the determinant of a positive definite matrix."""
    return sum(2 * math.log(row[-1]) for row in cholesky(matrix))


def quadratic(row: Sequence[float], matrix: Sequence[Sequence[float]]) -> float:
    """Return ``row`` · ``matrix`` · ``row``."""
    present = [(i, value) for i, value in enumerate(row) if value]
    return sum(a * b * matrix[i][j] for i, a in present for j, b in present)
