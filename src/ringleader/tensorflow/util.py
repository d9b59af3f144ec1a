"""How TensorFlow runs just now, and small functions that scripts import. Path and names are Horovod's."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import tensorflow as tf

F = TypeVar("F", bound=Callable[..., Any])


def _executing_eagerly() -> bool:
    """Return whether operations run at once, rather than become part of a graph."""
    return bool(tf.executing_eagerly())


def _make_subgraph(f: F) -> F:
    """Return the function as a `tf.function`."""
    graph_function: F = tf.function(f)
    return graph_function


def _cache(f: F) -> F:
    """Return a function that keeps its results, by its arguments and by whether TensorFlow runs eagerly."""
    kept: dict[Any, Any] = {}

    def look_up(*args: Any) -> Any:
        key = (args, _executing_eagerly())
        if key not in kept:
            kept[key] = f(*args)
        return kept[key]

    return look_up  # type: ignore[return-value]


def vars_to_refs(vars: Any) -> Any:
    """Return what can be a key of a dictionary in place of variables, or of lists of them."""
    return tuple(map(vars_to_refs, vars)) if isinstance(vars, list) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """Return the variables that `vars_to_refs` was given."""
    return list(map(refs_to_vars, refs)) if isinstance(refs, tuple) else refs.deref()


def called_as_written(function: F) -> F:
    """Mark a function that AutoGraph calls as it is, without a wrapper around it, and return it.

    AutoGraph still rewrites functions that it hands to TensorFlow; see `traced_as_written`.
    """
    marks = vars(tf.autograph.experimental.do_not_convert(function))
    vars(function).update({key: value for key, value in marks.items() if key != "__wrapped__"})
    return function


def traced_as_written(function: F) -> F:
    """Return a function whose Python AutoGraph does not rewrite when a `tf.function` that calls it is traced.

    Its decisions are about the job, not about tensors.
    """
    while_traced = tf.autograph.experimental.do_not_convert(function)

    # Takes over what tells AutoGraph to leave it alone, too.
    @wraps(while_traced)
    def same(*args: Any, **kwargs: Any) -> Any:
        # What switches AutoGraph off costs a microsecond that an eager call need not pay.
        return function(*args, **kwargs) if tf.executing_eagerly() else while_traced(*args, **kwargs)

    return same  # type: ignore[return-value]
