"""Options that a scheduler takes, and the values given for them."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from torchx._startup.dataclass import light_dataclass
from torchx._startup.lazy_logger import get_logger
from torchx._words import FALSE_WORDS, TRUE_WORDS, did_you_mean, parse_bool
from torchx.errors import InvalidInput, InvalidRunConfigException
from torchx.util.types import to_dict

logger = get_logger("torchx.specs.api")

CfgVal = str | int | float | bool | list[str] | dict[str, str] | None
"""Value of an option."""


class cases:
    """Spellings of names."""

    @staticmethod
    def snake_to_camel(name: str) -> str:
        """``num_retries`` → ``numRetries``."""
        first, *others = name.split("_")
        return first + "".join(part.title() for part in others)

    @staticmethod
    def camel_to_snake(name: str) -> str:
        """``numRetries`` → ``num_retries``."""
        if name == name.lower():  # nearly all, and asked for with each option that is read
            return name
        out = []
        for before, char in zip(" " + name, name, strict=False):
            if "A" <= char <= "Z" and ("a" <= before <= "z" or "0" <= before <= "9"):
                out.append("_")
            out.append(char)
        return "".join(out).lower()


def get_type_name(tp: Any) -> str:
    """Returns the display name of a type: ``list`` for ``list[str]``."""
    if getattr(tp, "__module__", None) == "typing":
        return str(tp)
    return str(getattr(tp, "__name__", tp))


def _parameters(tp: Any) -> tuple[Any, tuple[Any, ...]]:
    return getattr(tp, "__origin__", None), getattr(tp, "__args__", ())


@light_dataclass
class runopt:
    """An option of a scheduler.

    Args:
        default: value if none is given; ``None`` means none.
        opt_type: ``str``, ``int``, ``float``, ``bool``, ``list[str]`` or ``dict[str, str]``.
    """

    default: CfgVal
    opt_type: Any
    is_required: bool
    help: str

    @property
    def is_type_list_of_str(self) -> bool:
        """True if values are lists."""
        return _parameters(self.opt_type) == (list, (str,))

    @property
    def is_type_dict_of_str(self) -> bool:
        """True if values are mappings."""
        return _parameters(self.opt_type) == (dict, (str, str))

    def cast_to_type(self, value: str) -> CfgVal:
        """Converts a text to a value of this option's type.

        Raises:
            ValueError: if the text is not of this option's type.
        """
        if self.opt_type is None:
            msg = "runopt's opt_type cannot be `None`"
            raise ValueError(msg)
        if self.opt_type is bool:
            return _cast_bool(value)
        if self.is_type_list_of_str:
            return _elements(value)
        if self.is_type_dict_of_str:
            return dict(map(_pair, _elements(value)))
        cast: CfgVal = self.opt_type(value)
        return cast


class _LazilyDescribed(runopt):
    """An option whose help is built on first access, because most commands show none."""

    def __init__(
        self, default: CfgVal, opt_type: Any, is_required: bool, describe: Callable[[], str]
    ) -> None:
        self.default = default
        self.opt_type = opt_type
        self.is_required = is_required
        self._describe = describe

    @cached_property
    def help(self) -> str:  # type: ignore[override]  # read once, an attribute then
        """The help text."""
        return self._describe()


def _cast_bool(value: str) -> bool:
    found = parse_bool(value)
    if found is not None:
        return found
    msg = (
        f"`{value}` is not a valid bool literal, expected one of (case-insensitive):"
        f" {'/'.join(TRUE_WORDS)} or {'/'.join(FALSE_WORDS)}"
    )
    raise ValueError(msg)


def _elements(value: str) -> list[str]:
    return [part for part in value.replace(";", ",").split(",") if part]


def _pair(element: str) -> tuple[str, str]:
    key, colon, value = element.partition(":")
    if not colon:
        msg = f"`{element}` is not a `key:value` pair; write `key1:value1,key2:value2`"
        raise ValueError(msg)
    return key, value


class runopts:
    """The options of a scheduler, in the order in which they were added.

    >>> opts = runopts()
    >>> opts.add("priority", type_=int, default=5, help="job priority")
    >>> opts.resolve({})
    {'priority': 5}
    """

    def __init__(self) -> None:
        self._opts: dict[str, runopt] = {}

    def __iter__(self) -> Iterator[tuple[str, runopt]]:
        return iter(self._opts.items())

    def __len__(self) -> int:
        return len(self._opts)

    @staticmethod
    def is_type(obj: CfgVal, tp: Any) -> bool:
        """``isinstance`` that also takes ``list[str]`` and ``dict[str, str]``."""
        origin, _ = _parameters(tp)
        if origin is None:
            return isinstance(obj, tp)
        if isinstance(obj, list):
            return all(isinstance(e, str) for e in obj)
        if isinstance(obj, dict):
            return all(isinstance(k, str) and isinstance(v, str) for k, v in obj.items())
        return False

    def add(
        self,
        cfg_key: str,
        type_: Any,
        help: str | Callable[[], str],
        default: CfgVal = None,
        required: bool = False,
    ) -> None:
        """Adds an option, or replaces it.

        Args:
            help: the help text, or a function that returns it when needed.

        Raises:
            ValueError: if a required option has a default.
            TypeError: if the default is not of that type.
        """
        if required and default is not None:
            msg = f"Required option: {cfg_key} must not specify default value. Given: {default}"
            raise ValueError(msg)
        if default is not None and not runopts.is_type(default, type_):
            msg = (
                f"Option: {cfg_key}, must be of type: {type_}."
                f" Given: {default} ({type(default).__name__})"
            )
            raise TypeError(msg)
        self._opts[cfg_key] = (
            runopt(default, type_, required, help)
            if isinstance(help, str)
            else _LazilyDescribed(default, type_, required, help)
        )

    def canonical_key(self, name: str) -> str | None:
        """Returns the spelling under which an option is registered; ``None`` if it is not."""
        if name in self._opts:
            return name
        snake = cases.camel_to_snake(name)
        return snake if snake in self._opts else None

    def get(self, name: str) -> runopt | None:
        """Returns the option; ``None`` if there is none. Accepts camelCase, too."""
        key = self.canonical_key(name)
        return None if key is None else self._opts[key]

    def update(self, other: "runopts") -> None:
        """Adds the options of the other."""
        self._opts.update(other._opts)

    def __or__(self, other: "runopts") -> "runopts":
        both = runopts()
        both.update(self)
        both.update(other)
        return both

    def resolve(
        self, cfg: Mapping[str, CfgVal], *, ignore_unknown: bool = False
    ) -> dict[str, CfgVal]:
        """Checks the values given and fills in defaults.

        Args:
            ignore_unknown: pass options that are not registered through unchanged.

        Raises:
            InvalidRunConfigException: for an unknown, missing or ill-typed option.
        """
        resolved: dict[str, CfgVal] = {}
        self._canonical(cfg.items(), cfg, resolved, ignore_unknown, keep_unknown=True)
        for key, opt in self._opts.items():
            value = resolved.get(key)
            if value is None and opt.is_required:
                msg = f"Required run option: {key}, must be provided and not `None`"
                raise InvalidRunConfigException(msg, key, cfg)
            if value is not None and not runopts.is_type(value, opt.opt_type):
                msg = (
                    f"Run option: {key}, must be of type: {get_type_name(opt.opt_type)},"
                    f" but was: {value} ({type(value).__name__})"
                )
                raise InvalidRunConfigException(msg, key, cfg)
            if key not in resolved:
                resolved[key] = _fresh(opt.default)
        return resolved

    def cfg_from_str(self, cfg_str: str) -> dict[str, CfgVal]:
        """Parses ``key=value`` pairs, separated by ``,`` or ``;``. Unknown keys are left out.

        >>> opts = runopts()
        >>> opts.add("tags", type_=list[str], help="tags")
        >>> opts.cfg_from_str("tags=a,b")
        {'tags': ['a', 'b']}

        Raises:
            ValueError: if the text or a value in it cannot be read.
        """
        if not cfg_str:
            return {}
        pairs = to_dict(cfg_str)
        known = {}
        for key, value in pairs.items():
            opt = self.get(key)
            if opt is None:
                logger.warning(
                    "run option `%s` is unknown and ignored; valid options are: %s%s",
                    key,
                    ", ".join(sorted(self._opts)) or "(none declared)",
                    self.suggestion(key),
                )
                continue
            try:
                known[key] = opt.cast_to_type(value)
            except ValueError as err:
                msg = f"run option `{key}` cannot be read from `{value}`: {err}"
                raise InvalidInput(msg) from None
        cfg: dict[str, CfgVal] = {}
        self._canonical(known.items(), known, cfg, False, keep_unknown=False)
        return cfg

    def cfg_from_json_repr(
        self, json_repr: str, *, ignore_unknown: bool = False
    ) -> dict[str, CfgVal]:
        """Parses a JSON object. Types are checked by ``resolve``, not here.

        Args:
            ignore_unknown: leave out options that are not registered.

        Raises:
            InvalidInput: if the text is not a JSON object.
            InvalidRunConfigException: for an unknown option.
        """
        import json

        try:
            given = json.loads(json_repr)
        except ValueError as err:
            msg = f"run options must be a JSON object, `{json_repr}` is not JSON: {err}"
            raise InvalidInput(msg) from None
        if not isinstance(given, dict):
            msg = f"run options must be a JSON object, given: {json_repr}"
            raise InvalidInput(msg)
        values = {key: self._from_json(key, value) for key, value in given.items()}
        cfg: dict[str, CfgVal] = {}
        self._canonical(values.items(), values, cfg, ignore_unknown, keep_unknown=False)
        return cfg

    def _from_json(self, key: str, value: Any) -> CfgVal:
        opt = self.get(key)
        if opt is not None and opt.is_type_list_of_str and isinstance(value, list):
            return [str(e) for e in value]
        if opt is not None and opt.is_type_dict_of_str and isinstance(value, dict):
            return {str(k): str(v) for k, v in value.items()}
        result: CfgVal = value
        return result

    def _canonical(
        self,
        items: Any,
        cfg: Mapping[str, CfgVal],
        out: dict[str, CfgVal],
        ignore_unknown: bool,
        keep_unknown: bool,
    ) -> None:
        """Puts the items into ``out`` under their registered spellings."""
        spelled: dict[str, str] = {}
        for name, value in items:
            key = self.canonical_key(name)
            if key is None:
                if not ignore_unknown:
                    raise InvalidRunConfigException(self._unknown(name), name, cfg)
                if keep_unknown:
                    out[name] = value
                continue
            if key in spelled and out[key] != value:
                msg = (
                    f"Run option `{key}` was passed under two spellings (`{spelled[key]}` and"
                    f" `{name}`) with conflicting values. Pass it once, as `{key}`"
                )
                raise InvalidRunConfigException(msg, key, cfg)
            spelled[key] = name
            out[key] = value

    def _unknown(self, name: str) -> str:
        valid = ", ".join(sorted(self._opts)) or "(none declared)"
        return f"Unknown run option `{name}`. Valid options are: {valid}{self.suggestion(name)}"

    def suggestion(self, name: str) -> str:
        """Returns a hint at a similar option, to append to a sentence; empty if there is none."""
        hint = did_you_mean(cases.camel_to_snake(name), self._opts)
        return f".{hint}" if hint else ""

    def __repr__(self) -> str:
        from torchx.specs._options_text import format_options

        return format_options(self)


def _fresh(default: CfgVal) -> CfgVal:
    if isinstance(default, list):
        return list(default)
    return dict(default) if isinstance(default, dict) else default
