"""``dataclass`` for values that the launcher makes: the standard library's, made ten times as fast.

The standard library writes and compiles source for each method of each class: 0.9 ms for a frozen class of
ten fields, and a user who starts a job waits for some fifty of them. Here methods are ordinary functions that
loop over the fields. ``fields``, ``replace`` and ``asdict`` of ``dataclasses`` work as ever; to make a value
takes some microseconds more. Only for ``frozen=True, kw_only=True``, and fields that ``__init__`` takes.
"""

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

    def _value_class(cls):
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
        own = dataclasses.fields(cls)
        methods = (_init(cls, own), _eq(own), _hash(own), _repr(own), _setattr(), _delattr())
        for method in methods:
            name = method.__name__
            if name not in cls.__dict__:
                method.__qualname__ = f"{cls.__qualname__}.{name}"
                setattr(cls, name, method)
        return cls

    def _init(cls, own):
        names = frozenset(one.name for one in own)
        defaults = {one.name: one.default for one in own if one.default is not MISSING}
        makers = [(one.name, one.default_factory) for one in own if one.default_factory is not MISSING]
        follow = getattr(cls, "__post_init__", None)

        def __init__(self, **given):  # noqa: N807
            values = self.__dict__
            values.update(defaults)
            values.update(given)
            for name, make in makers:
                if name not in given:
                    values[name] = make()
            if values.keys() != names:
                raise TypeError(_odd(type(self).__name__, names, values))
            if follow is not None:
                self.__post_init__()

        return __init__

    def _odd(name, names, values):
        missing = sorted(names - values.keys())
        if missing:
            return f"{name}() lacks the arguments {', '.join(missing)}"
        return f"{name}() has no arguments {', '.join(sorted(values.keys() - names))}"

    def _eq(own):
        names = [one.name for one in own if one.compare]

        def __eq__(self, other):  # noqa: N807
            if other.__class__ is not self.__class__:
                return NotImplemented
            mine, others = self.__dict__, other.__dict__
            return all(mine[name] is others[name] or mine[name] == others[name] for name in names)

        return __eq__

    def _hash(own):
        names = [one.name for one in own if (one.compare if one.hash is None else one.hash)]

        def __hash__(self):  # noqa: N807
            values = self.__dict__
            return hash(tuple([values[name] for name in names]))

        return __hash__

    def _repr(own):
        names = [one.name for one in own if one.repr]

        def __repr__(self):  # noqa: N807
            values = self.__dict__
            shown = ", ".join(f"{name}={values[name]!r}" for name in names)
            return f"{self.__class__.__qualname__}({shown})"

        return __repr__

    def _setattr():
        def __setattr__(self, name, value):  # noqa: N807
            raise FrozenInstanceError(f"cannot assign to field {name!r}")

        return __setattr__

    def _delattr():
        def __delattr__(self, name):  # noqa: N807
            raise FrozenInstanceError(f"cannot delete field {name!r}")

        return __delattr__


__all__ = ["dataclass", "field"]
