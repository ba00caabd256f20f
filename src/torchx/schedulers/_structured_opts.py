"""Options of a scheduler declared as the fields of a dataclass."""

import functools
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx._startup.dataclass import MISSING, field, fields, light_dataclass
from torchx.errors import InvalidInput
from torchx.specs.api import CfgVal, InvalidRunConfigException, cases, runopts

if TYPE_CHECKING:
    from dataclasses import Field

    from typing_extensions import Self


@light_dataclass
class StructuredOpts(Mapping[str, CfgVal]):
    """Base of typed options: subclass it as a dataclass, write the help text below each field.

    An instance is also a mapping of the option names to their values. A field that is itself a
    ``StructuredOpts`` is a group: its options are named ``<field>.<option>``.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Opts(StructuredOpts):
    ...     queue: str = "default"
    >>> dict(Opts.from_cfg({"queue": "gpu"}))
    {'queue': 'gpu'}
    """

    # options without a field: those of a workspace builder
    _extra_cfg: dict[str, CfgVal] = field(
        default_factory=dict, repr=False, compare=False, kw_only=True
    )

    def __post_init__(self) -> None:
        """Accepts a mapping instead of fields, like the typed dicts of release 0.7."""
        first = next(iter(_layout(type(self))), None)
        if first is None or first.group is not None or _is_mapping_type(first.type):
            return
        given = getattr(self, first.name)
        if isinstance(given, Mapping):
            vars(self).update(vars(self.from_cfg(given)))

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__doc__ is None:  # `dataclass` would import `inspect` to write one
            cls.__doc__ = "Options of a scheduler; help is written below each field."

    @classmethod
    def as_runopts(cls) -> runopts:
        """Returns one option per field, in order; groups are expanded in place."""
        known: runopts | None = cls.__dict__.get("_torchx_runopts")
        if known is None:
            known = runopts()
            for option in _options_of(cls):
                known.add(
                    option.key,
                    type_=option.type,
                    help=option.help,
                    default=option.default,
                    required=option.required,
                )
            if "_torchx_layout" in cls.__dict__:  # all types of the fields were found
                cls._torchx_runopts = known  # type: ignore[attr-defined]  # a cache, not a field
        return known | runopts()  # a copy, as callers add options to it

    @classmethod
    def from_cfg(cls, cfg: Mapping[str, CfgVal]) -> "Self":
        """Creates options by name, field name or camelCase; keeps those without a field.

        Raises:
            InvalidRunConfigException: if two spellings of an option have different values.
            TypeError: if a required option is missing.
        """
        values: dict[str, Any] = {}
        used: set[str] = set()
        for item in _layout(cls):
            if item.group is None:
                spelled = [name for name in item.spellings if name in cfg]
                used.update(spelled)
                value = _one_value(item.key, spelled, cfg)
                if spelled and not (value is None and item.has_factory):
                    values[item.name] = value
                continue
            inner = _group_cfg(item, cfg, used)
            if inner or not item.has_default:
                group = _make_group(item, item.group, inner)
                if group is not None:
                    values[item.name] = group
        opts = cls(**values)
        opts._extra_cfg = {k: v for k, v in cfg.items() if k not in used}
        return opts

    @classmethod
    def get_docstrings(cls) -> dict[str, str]:
        """Returns help texts by field, if the source is available."""
        texts = _texts(cls)
        docs: dict[str, str] = {}
        for item in _layout(cls):
            if item.group is not None:
                docs.update({f"{item.name}.{k}": v for k, v in item.group.get_docstrings().items()})
            elif item.name in texts:
                docs[item.name] = texts[item.name]
        return docs

    def __getitem__(self, key: str) -> CfgVal:
        if not isinstance(key, str):
            raise KeyError(key)
        by_name = _by_name(type(self))
        found = by_name.get(key)  # as most are asked for
        if found is not None:
            return self._value(found)
        head, dot, rest = key.partition(".")
        layout = _layout(type(self))
        if dot:
            name = cases.camel_to_snake(head)
            for item in layout:
                if item.name == name and item.group is not None:
                    group = getattr(self, name)
                    if group is None:
                        raise KeyError(key)
                    return typing.cast(StructuredOpts, group)[rest]  # declared so by the field
        else:
            found = by_name.get(cases.camel_to_snake(key))
            if found is not None:
                return self._value(found)
        for item in layout:
            if item.key == key and item.group is None:
                return self._value(item)
        return self._extra_cfg[key]

    def _value(self, item: "_Field") -> CfgVal:
        value: CfgVal = getattr(self, item.name)
        return value

    def __iter__(self) -> Iterator[str]:
        seen = set()
        for item in _layout(type(self)):
            if item.group is None:
                seen.add(item.key)
                yield item.key
            else:
                group = getattr(self, item.name)
                for key in group if group is not None else ():
                    seen.add(f"{item.name}.{key}")
                    yield f"{item.name}.{key}"
        for key in self._extra_cfg:
            if key not in seen:
                yield key

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str):
            return False
        try:
            self[key]
        except KeyError:
            return False
        return True

    def __or__(self, other: Mapping[str, CfgVal]) -> dict[str, CfgVal]:
        if not isinstance(other, Mapping):
            return NotImplemented
        return {**self, **other}


def resolve_cfg(opts: runopts, cfg: Any) -> Any:
    """The options in full; a client's own object in place of a mapping (NeMo-Run) is left as is."""
    if cfg is None:
        cfg = {}
    if isinstance(cfg, Mapping):
        return opts.resolve(cfg)
    if isinstance(cfg, (str, bytes, int, float, Sequence)):
        msg = (
            f"cfg must be a mapping of option names to values, given: {cfg!r}. "
            "`Runner.cfg_from_str` makes one from text"
        )
        raise InvalidInput(msg)
    return cfg


def opts_type_of(cls: type, interface: type) -> type[StructuredOpts] | None:
    """The ``StructuredOpts`` subclass in the first ``interface[...]`` among the bases."""
    for base in cls.__mro__:
        for generic in base.__dict__.get("__orig_bases__", ()):
            if typing.get_origin(generic) is interface:
                (arg,) = typing.get_args(generic)
                if not isinstance(arg, type) or typing.get_origin(arg) is not None:
                    return None
                concrete = issubclass(arg, StructuredOpts) and arg is not StructuredOpts
                return arg if concrete else None
    return None


class _Field:
    """A declared option or group of options."""

    __slots__ = ("group", "has_default", "has_factory", "key", "name", "raw", "spellings", "type")

    def __init__(self, raw: "Field[Any]", annotation: Any) -> None:
        self.raw = raw
        self.name = raw.name
        self.key: str = raw.metadata.get("cfg_key") or raw.name
        names = (self.key, raw.name, cases.snake_to_camel(raw.name))
        self.spellings = tuple(dict.fromkeys(names))
        self.type = _without_none(annotation)
        self.has_factory = raw.default_factory is not MISSING
        self.has_default = self.has_factory or raw.default is not MISSING
        is_group = (
            isinstance(self.type, type)
            and typing.get_origin(self.type) is None
            and issubclass(self.type, StructuredOpts)
            and self.type is not StructuredOpts
        )
        self.group: type[StructuredOpts] | None = self.type if is_group else None


class _Option:
    """An option as it is registered."""

    __slots__ = ("default", "help", "key", "required", "type")

    def __init__(
        self, key: str, type_: Any, default: Any, required: bool, help: Callable[[], str]
    ) -> None:
        self.key = key
        self.type = type_
        self.default = default
        self.required = required
        self.help = help


def _layout(cls: type[StructuredOpts]) -> tuple[_Field, ...]:
    """Returns the public fields of a class, computed once."""
    known: tuple[_Field, ...] | None = cls.__dict__.get("_torchx_layout")
    if known is None:
        annotations, found = _annotations_of(cls)
        known = tuple(
            _Field(raw, annotations[raw.name])
            for raw in fields(cls)
            if not raw.name.startswith("_") and raw.init
        )
        # an undecorated class has the fields of its base
        if found and "__dataclass_fields__" in cls.__dict__:
            cls._torchx_layout = known  # type: ignore[attr-defined]  # a cache, not a field
    return known


def _by_name(cls: type[StructuredOpts]) -> dict[str, _Field]:
    """Returns the fields of ``_layout`` that are no groups, by name; a request reads dozens."""
    known: dict[str, _Field] | None = cls.__dict__.get("_torchx_by_name")
    if known is None:
        layout = _layout(cls)
        known = {item.name: item for item in layout if item.group is None}
        if cls.__dict__.get("_torchx_layout") is layout:
            cls._torchx_by_name = known  # type: ignore[attr-defined]  # a cache, not a field
    return known


def _annotations_of(cls: type[StructuredOpts]) -> tuple[dict[str, Any], bool]:
    """Returns the types of the fields, and whether all were found.

    With postponed annotations, a type that is not a global of its module stays a string: values can
    be read without it.
    """
    try:
        return typing.get_type_hints(cls), True
    except NameError:
        pass
    import sys

    types_found: dict[str, Any] = {}
    for owner in reversed(cls.__mro__):
        space = vars(sys.modules.get(owner.__module__, object()))
        for name, annotation in owner.__dict__.get("__annotations__", {}).items():
            try:
                holder = type("_", (), {"__annotations__": {name: annotation}})
                types_found.update(typing.get_type_hints(holder, space))
            except NameError:
                types_found[name] = annotation
    return types_found, False


def _check_known_type(cls: type[StructuredOpts], item: _Field) -> None:
    if isinstance(item.type, str):
        msg = (
            f"the type `{item.type}` of option `{item.name}` of `{cls.__qualname__}` is not found;"
            f" import it at the top of `{cls.__module__}`"
        )
        raise NameError(msg)


def _is_mapping_type(tp: Any) -> bool:
    origin = typing.get_origin(tp) or tp
    return not isinstance(origin, type) or issubclass(origin, Mapping)


def _options_of(cls: type[StructuredOpts]) -> list[_Option]:
    options = []
    for item in _layout(cls):
        _check_known_type(cls, item)
        if item.group is None:
            default = item.raw.default if item.raw.default is not MISSING else None
            text = functools.partial(_text, cls, item.name)
            options.append(_Option(item.key, item.type, default, not item.has_default, text))
            continue
        for inner in _options_of(item.group):
            key = f"{item.name}.{inner.key}"
            required = inner.required and not item.has_default
            options.append(_Option(key, inner.type, inner.default, required, inner.help))
    return options


def _text(cls: type[StructuredOpts], name: str) -> str:
    """Returns the help of one option on one line; its name if there is none."""
    return " ".join(_texts(cls).get(name, name).split()) or name


def _texts(cls: type[StructuredOpts]) -> dict[str, str]:
    """Returns the texts below the fields of a class and its bases, read from the source once."""
    known: dict[str, str] | None = cls.__dict__.get("_torchx_texts")
    if known is None:
        from docstring_parser.attrdoc import AttributeDocstrings

        known = {}
        for owner in reversed(cls.__mro__):
            if issubclass(owner, StructuredOpts) and owner is not StructuredOpts:
                try:
                    found = AttributeDocstrings().get_attr_docs(owner)
                except TypeError:  # a class without source, as in a REPL
                    continue
                known.update({field: text.strip() for field, (text, *_) in found.items()})
        cls._torchx_texts = known  # type: ignore[attr-defined]  # a cache, not a field
    return known


def _one_value(key: str, spelled: list[str], cfg: Mapping[str, CfgVal]) -> CfgVal:
    if not spelled:
        return None
    first = spelled[0]
    for other in spelled[1:]:
        if cfg[other] != cfg[first]:
            reason = (
                f"Run option `{key}` was passed under two spellings (`{first}` and `{other}`)"
                f" with conflicting values. Pass it once, as `{key}`"
            )
            raise InvalidRunConfigException(reason, key, dict(cfg))
    return cfg[first]


def _group_cfg(item: _Field, cfg: Mapping[str, CfgVal], used: set[str]) -> dict[str, CfgVal]:
    """Returns the options of a group by their names inside it."""
    prefixes = dict.fromkeys((f"{item.name}.", f"{cases.snake_to_camel(item.name)}."))
    inner: dict[str, CfgVal] = {}
    for prefix in prefixes:
        for key, value in cfg.items():
            if key.startswith(prefix):
                used.add(key)
                name = key[len(prefix) :]
                if name in inner:  # given in both spellings
                    value = _one_value(f"{item.name}.{name}", [f"{item.name}.{name}", key], cfg)
                inner[name] = value
    return inner


def _make_group(
    item: _Field, group: type[StructuredOpts], inner: dict[str, CfgVal]
) -> StructuredOpts | None:
    """Returns the group, or ``None`` to keep its default.

    Resolved options always hold those of every group, at their defaults. An optional group with
    required options is present if any of its options has another value.
    """
    options = _options_of(group)
    required = [o.key for o in options if o.required]
    missing = [key for key in required if inner.get(key) is None]
    if not item.has_default or not missing:
        return group.from_cfg(inner)
    defaults = {o.key: o.default for o in options}
    given = [key for key, value in inner.items() if value != defaults.get(key)]
    if not given:
        return None
    reason = (
        f"Required run option: {item.name}.{missing[0]}, must be provided and not `None`"
        f" when `{item.name}.{given[0]}` is"
    )
    raise InvalidRunConfigException(reason, f"{item.name}.{missing[0]}", inner)


def _without_none(annotation: Any) -> Any:
    """Returns ``X`` for ``X | None``; other unions lose only their ``None``."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation
    members = tuple(a for a in typing.get_args(annotation) if a is not type(None))
    return members[0] if len(members) == 1 else typing.Union[members]  # noqa: UP007 - built at run time
