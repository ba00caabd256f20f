"""Dataclasses that take little time to define, for the modules that every command imports.

``light_dataclass`` stands for ``dataclasses.dataclass``. Its classes are dataclasses in all
that counts: fields, constructor, equality, repr, hash, ``replace``, ``asdict``. Two things differ.
All of them share one ``__repr__``, ``__eq__`` and ``__hash__`` where ``dataclass`` compiles their
source text for each class anew, and ``frozen=True`` is for type checkers: it gives a hash, but
nothing keeps an instance from being changed at run time, which would make it six times as slow to
create.

``dataclasses`` itself is imported without ``inspect``, of which it uses a function or two in rare
cases and which takes longer to import than all that it is needed for.
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import MISSING, asdict, field, fields, replace
    from dataclasses import dataclass as light_dataclass

else:

    class _LateInspect:
        """Stands for ``inspect`` in ``dataclasses``, and imports it when it is really used."""

        __spec__ = None  # read by the import system

        @staticmethod
        def get_annotations(cls):
            return dict(cls.__dict__.get("__annotations__", {}))  # asked for each class by 3.13

        def __getattr__(self, name):
            _discard(self)
            import inspect

            return getattr(inspect, name)

    def _discard(stand_in):
        if sys.modules.get("inspect") is stand_in:
            sys.modules.pop("inspect", None)

    def _import_dataclasses():
        """Imports the module without ``inspect``, unless that is loaded already."""
        stand_in = _LateInspect()
        if sys.modules.setdefault("inspect", stand_in) is not stand_in:
            return
        try:
            import dataclasses  # noqa: F401 - loaded for those who import it below
        finally:
            _discard(stand_in)

    _import_dataclasses()

    from dataclasses import MISSING, asdict, dataclass, field, fields, replace
    from reprlib import recursive_repr

    def light_dataclass(cls=None, /, *, frozen=False):
        if cls is None:
            return lambda decorated: light_dataclass(decorated, frozen=frozen)
        own = cls.__dict__
        if "__repr__" not in own:
            cls.__repr__ = _repr
        if "__eq__" not in own:
            cls.__eq__ = _eq
            if "__hash__" not in own:
                cls.__hash__ = _hash if frozen else None
        return dataclass(repr=False, eq=False)(cls)

    @recursive_repr()
    def _repr(self):
        shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _eq(self, other):
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _compared(self) == _compared(other)

    def _hash(self):
        return hash(_compared(self))

    def _compared(self):
        return tuple([getattr(self, f.name) for f in fields(self) if f.compare])


__all__ = ["MISSING", "asdict", "field", "fields", "light_dataclass", "replace"]
