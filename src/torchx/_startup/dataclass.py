"""Dataclasses that take little time to define, for the modules that every command imports.

``light_dataclass`` stands for ``dataclasses.dataclass``: its classes have the same fields,
constructor, equality, repr, hash and signature, for ``replace``, ``asdict``, pickle and subclasses
as well. A dry run on ``local_cwd`` defines some 30 of them, and takes 75 ms of processor time in
place of 87. It takes a tenth of the time to define one, in four ways:

- ``dataclass`` compiles the source text of some four methods for each class. Here a constructor is
  compiled when the first instance is made, and the other methods are the same for all classes.
- ``frozen=True`` gives a hash and is enforced by type checkers only: at run time it would take two
  more methods, and six times as long to make an instance.
- The fields of a class are found when somebody first reads them or makes an instance: of the 30,
  two thirds are only there for other commands.
- ``dataclasses`` is imported without ``inspect``, of which it uses a function or two in rare cases,
  and which takes 3 ms.

There are no ``slots``, ``order`` or ``init=False``. That no field without a default stands behind
one with it is not checked at the definition; a test does, for all classes of ours.
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import MISSING, asdict, field, fields, replace
    from dataclasses import dataclass as light_dataclass

else:

    class _LateInspect:
        """Replaces ``inspect`` in ``dataclasses`` and imports it on first real use."""

        __spec__ = None  # read by the import system

        @staticmethod
        def get_annotations(cls):
            return dict(cls.__dict__.get("__annotations__", {}))  # looked up for each class by 3.13

        def __getattr__(self, name):
            _discard(self)
            import inspect

            return getattr(inspect, name)

    def _discard(stand_in):
        if sys.modules.get("inspect") is stand_in:
            sys.modules.pop("inspect", None)

    def _import_dataclasses():
        """Imports ``dataclasses`` without ``inspect``, unless that is already loaded."""
        stand_in = _LateInspect()
        if sys.modules.setdefault("inspect", stand_in) is not stand_in:
            return
        try:
            import dataclasses  # noqa: F401 - loaded for those who import it below
        finally:
            _discard(stand_in)

    _import_dataclasses()

    from _thread import RLock  # `threading` may not be loaded
    from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
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
        if "__replace__" not in own:
            cls.__replace__ = _replace
        if "__init__" not in own:
            cls.__init__ = _first_init(cls)
            cls.__signature__ = _Signature(cls)
        late = _LateFields(cls, frozen)
        for name in _LATE:
            setattr(cls, name, late.attribute(name))
        if late.may_be_wrong():
            late.find()  # what is wrong is raised here
        return cls

    _LATE = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")
    """The attributes that ``dataclass`` finds out about a class."""

    _finding = RLock()
    """One for all classes: those of bases change for a moment, see ``_process``."""

    class _LateFields:
        """Has ``dataclass`` find the fields of a class when somebody first reads what it finds."""

        def __init__(self, cls, frozen):
            self.frozen = frozen
            self._cls = cls
            self._found = False
            self._declared = {n: v for n, v in cls.__dict__.items() if isinstance(v, Field)}
            for name, declared in self._declared.items():
                _show_default(cls, name, declared)

        def attribute(self, name):
            """Returns the attribute that stands for one until it is found."""
            return _LateAttribute(self, name)

        def may_be_wrong(self):
            own = self._cls.__dict__
            typed = own.get("__annotations__", ())
            return (
                any(_has_other_fields(base, self.frozen) for base in self._cls.__mro__[1:])
                or any(name not in typed for name in self._declared)
                or any(own[name].__hash__ is None for name in typed if name in own)
            )

        def find(self):
            with _finding:
                if not self._found:
                    for name, declared in self._declared.items():
                        setattr(self._cls, name, declared)
                    _process(self._cls, self.frozen)
                    self._found = True

    class _LateAttribute:
        def __init__(self, late, name):
            self.late = late
            self._name = name

        def __get__(self, instance, owner):
            self.late.find()
            return getattr(owner, self._name)

    def _show_default(cls, name, declared):
        """Leaves of a field what ``dataclass`` leaves of it in a class: its default, if any."""
        if declared.default is MISSING:
            delattr(cls, name)
        else:
            setattr(cls, name, declared.default)

    def _has_other_fields(base, frozen):
        """Returns True for dataclasses that are not light, or not frozen as the derived one is."""
        attribute = base.__dict__.get("__dataclass_fields__")
        if isinstance(attribute, _LateAttribute):
            return attribute.late.frozen is not frozen
        return attribute is not None

    def _process(cls, frozen):
        """Has the fields found. Nothing but frozen classes may derive from frozen ones, and these
        from nothing else: light ones say that they are, and do not while ``dataclass``, which is
        not told of ``frozen``, looks at them."""
        light = [b for b in cls.__mro__[1:] if isinstance(vars(b).get("__signature__"), _Signature)]
        if any(base.__dataclass_params__.frozen is not frozen for base in light):
            dataclass(init=False, repr=False, eq=False, frozen=frozen)(cls)  # raises a TypeError
        frozen_bases = light if frozen else ()
        for base in frozen_bases:
            base.__dataclass_params__.frozen = False
        try:
            dataclass(init=False, repr=False, eq=False, match_args=False)(cls)
        finally:
            for base in frozen_bases:
                base.__dataclass_params__.frozen = True
        cls.__dataclass_params__.frozen = frozen
        cls.__match_args__ = tuple([f.name for f in fields(cls) if f.init and not f.kw_only])

    def _replace(self, /, **changes):
        return replace(self, **changes)

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

    # -- constructors ---------------------------------------------------------------------------

    _FEW = 5
    """Instances made before a class's constructor is compiled: each takes ten times as long, all of
    them together less than compiling it.
    """

    def _first_init(cls):
        """Returns a constructor for the first instances; it then installs the compiled one."""
        made = 0
        plan = None

        def __init__(self, *args, **kwargs):
            nonlocal made, plan
            made += 1
            if plan is None:
                plan = _Plan(cls)
            values = plan.values(args, kwargs) if made <= _FEW else None
            if values is None:
                _compile_init(cls)
                cls.__init__(self, *args, **kwargs)
                return
            for name, value in values.items():
                setattr(self, name, value)
            if plan.has_post_init:
                self.__post_init__()

        return __init__

    class _Plan:
        """The plan of a class's constructor: its parameters, fields and defaults."""

        __slots__ = ("defaults", "has_post_init", "positional", "required")

        def __init__(self, cls):
            given = _parameters(cls)
            self.positional = [f.name for f in given if not f.kw_only]
            self.defaults = {f.name: (f.default, f.default_factory) for f in given}
            self.required = [n for n, (d, make) in self.defaults.items() if d is make is MISSING]
            self.has_post_init = hasattr(cls, "__post_init__")

        def values(self, args, kwargs):
            """Returns the values of all fields in order; ``None`` if the arguments do not match."""
            given = dict(zip(self.positional, args, strict=False))
            count = len(given)
            given.update(kwargs)
            doubled = len(args) > count or len(given) < count + len(kwargs)
            if doubled or not given.keys() <= self.defaults.keys():
                return None
            for name in self.required:
                if name not in given:
                    return None
            return {
                name: given[name] if name in given else make() if default is MISSING else default
                for name, (default, make) in self.defaults.items()
            }

    def _parameters(cls):
        given = sorted(fields(cls), key=lambda f: f.kw_only)  # keyword-only parameters come last
        assert all(f.init for f in given), "light dataclasses know no `init=False`"
        return given

    def _compile_init(cls):
        given = _parameters(cls)
        space = {"_FACTORY": _FACTORY}
        parameters, body = ["self"], []
        for f in given:
            if f.kw_only and "*" not in parameters:
                parameters.append("*")
            parameters.append(f.name)
            value = f.name
            if f.default is not MISSING:
                space[f"_default_{f.name}"] = f.default
                parameters[-1] += f"=_default_{f.name}"
            elif f.default_factory is not MISSING:
                space[f"_make_{f.name}"] = f.default_factory
                parameters[-1] += "=_FACTORY"
                value = f"_make_{f.name}() if {f.name} is _FACTORY else {f.name}"
            body.append(f" self.{f.name} = {value}\n")
        if hasattr(cls, "__post_init__"):
            body.append(" self.__post_init__()\n")
        exec(f"def __init__({', '.join(parameters)}):\n{''.join(body) or ' pass'}", space)
        init = space["__init__"]
        init.__annotations__ = {**{f.name: f.type for f in given}, "return": None}
        init.__qualname__ = f"{cls.__qualname__}.__init__"
        init.__module__ = cls.__module__
        cls.__init__ = init

    class _Factory:
        """Shown in signatures as the default of a field with a ``default_factory``."""

        def __repr__(self):
            return "<factory>"

    _FACTORY = _Factory()

    class _Signature:
        """Compiles the constructor before ``inspect`` reads its signature."""

        def __init__(self, cls):
            self._cls = cls

        def __get__(self, instance, owner):
            if "_first_init" in self._cls.__init__.__qualname__:
                _compile_init(self._cls)
            # `None` makes `inspect` continue as if this attribute did not exist


__all__ = ["MISSING", "asdict", "field", "fields", "light_dataclass", "replace"]
