"""What NumPy says an operation of a random program must give. Values are small integers, so that sums
and products are exact in every element type; only averages of floating-point types are rounded.

An operation is a dict as `test_programs.operations` draws it; ranks in it are positions in its process set.
"""

from typing import Any

import numpy as np

REDUCE = {"Sum": np.add, "Average": np.add, "Min": np.minimum, "Max": np.maximum, "Product": np.multiply}
TOLERANCE = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-6, "float64": 1e-14}
"""Relative, for averages: a little more than one rounding."""
Operation = dict[str, Any]


def shapes_of(operation: Operation, member: int) -> list[tuple[int, ...]]:
    kind, shapes = operation["kind"], [tuple(shape) for shape in operation["shapes"]]
    if kind.endswith("allgather"):
        return [(rows[member], *shape) for rows, shape in zip(operation["rows"], shapes, strict=True)]
    if kind == "alltoall":
        return [(sum(operation["splits"][member]) + operation["extra"], *shapes[0])]
    return shapes


def inputs(operation: Operation, member: int) -> list[np.ndarray]:
    dtype = operation["dtype"]
    low, high = (0, 2) if dtype == "bool" else (0 if dtype.startswith("u") else -2, 4)
    return [
        np.random.default_rng([operation["seed"], index, member])
        .integers(low, high, shape)
        .astype(np.float64)
        for index, shape in enumerate(shapes_of(operation, member))
    ]


def outputs(operation: Operation, member: int) -> list[np.ndarray]:
    everybody = [inputs(operation, other) for other in range(len(operation["members"]))]
    kind = operation["kind"].removeprefix("grouped_")
    if kind == "broadcast":
        return everybody[operation["root"]]
    if kind == "alltoall":
        return [_swapped(operation, [arrays[0] for arrays in everybody], member)]
    columns = [list(column) for column in zip(*everybody, strict=True)]
    if kind == "allgather":
        return [np.concatenate(column) for column in columns]
    totals = [_reduced(operation, column) for column in columns]
    if kind == "reducescatter":
        return [np.array_split(total, len(everybody))[member] for total in totals]
    return totals


def received(operation: Operation, member: int) -> list[int]:
    """Return how many rows of an alltoall a member gets from each."""
    return [splits[member] for splits in operation["splits"]]


def _swapped(operation: Operation, arrays: list[np.ndarray], member: int) -> np.ndarray:
    parts = []
    for array, splits in zip(arrays, operation["splits"], strict=True):
        start = sum(splits[:member])
        parts.append(array[start : start + splits[member]])
    return np.concatenate(parts)


def _reduced(operation: Operation, arrays: list[np.ndarray]) -> np.ndarray:
    reduction, dtype = operation["op"], operation["dtype"]
    whole = "int" in dtype
    scaled = [_cut(array * operation["prescale"], whole) for array in arrays]
    total = scaled[0]
    for one in scaled[1:]:
        total = REDUCE[reduction](total, one)
    factor = operation["postscale"] / (len(arrays) if reduction == "Average" else 1)
    return np.minimum(total, 1) if dtype == "bool" else _cut(total * factor, whole)


def _cut(array: np.ndarray, whole: bool) -> np.ndarray:
    """Cast back to a type of integers: toward zero."""
    return np.trunc(array) if whole else array


def compare(operation: Operation, got: list[np.ndarray], want: list[np.ndarray]) -> None:
    assert len(got) == len(want), f"{len(got)} tensors instead of {len(want)}"
    tolerance = TOLERANCE.get(operation["dtype"], 0.0) if operation.get("op") == "Average" else 0.0
    for one, other in zip(got, want, strict=True):
        assert one.shape == other.shape, f"shape {one.shape} instead of {other.shape}"
        assert np.allclose(one, other, rtol=tolerance, atol=0), f"{one} instead of {other}"
