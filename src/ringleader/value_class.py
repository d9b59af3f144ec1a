"""``dataclass`` for values that the launcher makes: the standard library's, made ten times as fast.

The standard library writes and compiles source for each method of each class: 0.9 ms for a frozen class of
ten fields, and a user who starts a job waits for some fifty of them. Here methods are ordinary functions that
loop over the fields. ``fields``, ``replace`` and ``asdict`` of ``dataclasses`` work as ever; to make a value
takes some microseconds more. Only for ``frozen=True, kw_only=True``, and fields that ``__init__`` takes.
"""
# ruff: noqa: N807

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass, field
else:
    import dataclasses
    from dataclasses import MISSING, FrozenInstanceError, field

    def dataclass(*, frozen, kw_only):
        """Return a decorator; both arguments are True, as a reader of the class should know."""
        assert frozen and kw_only
        return _value_class

    def _value_class(cls):  # noqa: C901 - the methods of a class, one after the other
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
        own = dataclasses.fields(cls)
        # All names, in their order: `vars` shows that of the class, whatever was given.
        defaults = {one.name: one.default for one in own}
        names = defaults.keys()
        required = frozenset(
            one.name for one in own if one.default is MISSING and one.default_factory is MISSING
        )
        makers = [(one.name, one.default_factory) for one in own if one.default_factory is not MISSING]
        compared = [one.name for one in own if one.compare]
        hashed = [one.name for one in own if (one.compare if one.hash is None else one.hash)]
        shown = [one.name for one in own if one.repr]
        follow = getattr(cls, "__post_init__", None)

        def __init__(self, **given):
            values = self.__dict__
            values.update(defaults)
            values.update(given)
            for name, make in makers:
                if name not in given:
                    values[name] = make()
            if values.keys() != names or not required <= given.keys():
                missing, odd = sorted(required - given.keys()), sorted(values.keys() - names)
                what = f"lacks the arguments {', '.join(missing)}" if missing else ""
                raise TypeError(f"{type(self).__name__}() {what or 'has no arguments ' + ', '.join(odd)}")
            if follow is not None:
                self.__post_init__()

        def __eq__(self, other):
            if other.__class__ is not self.__class__:
                return NotImplemented
            mine, others = self.__dict__, other.__dict__
            return all(mine[name] is others[name] or mine[name] == others[name] for name in compared)

        def __hash__(self):
            values = self.__dict__
            return hash(tuple([values[name] for name in hashed]))

        def __repr__(self):
            values = self.__dict__
            fields = ", ".join(f"{name}={values[name]!r}" for name in shown)
            return f"{self.__class__.__qualname__}({fields})"

        def __setattr__(self, name, value):
            raise FrozenInstanceError(f"cannot assign to field {name!r}")

        def __delattr__(self, name):
            raise FrozenInstanceError(f"cannot delete field {name!r}")

        for method in (__init__, __eq__, __hash__, __repr__, __setattr__, __delattr__):
            name = method.__name__
            if name not in cls.__dict__:
                method.__qualname__ = f"{cls.__qualname__}.{name}"
                setattr(cls, name, method)
        return cls


__all__ = ["dataclass", "field"]
