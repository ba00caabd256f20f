"""Builds an app from a component and its arguments."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin

from torchx._startup.signatures import EMPTY, Parameter, parameters
from torchx._words import FALSE_WORDS, TRUE_WORDS, parse_bool
from torchx.errors import ComponentValidationException
from torchx.specs._app import AppDef
from torchx.specs._handle import make_app_handle
from torchx.specs._mounts import BindMount, DeviceMount, VolumeMount, parse_mounts
from torchx.util.types import (
    decode_optional,
    get_argparse_param_type,
    is_bool,
    is_primitive,
    strip_annotated,
    to_dict,
    to_list,
)

if TYPE_CHECKING:
    import argparse

    from torchx.specs._component_parser import ComponentParser

__all__ = [
    "BindMount",
    "ComponentArgs",
    "DeviceMount",
    "VolumeMount",
    "component_args_from_str",
    "make_app_handle",
    "materialize_appdef",
    "parse_args",
    "parse_mounts",
]


class ComponentArgs(NamedTuple):
    """The arguments of a call of a component."""

    positional_args: dict[str, Any]
    var_args: list[str]
    kwargs: dict[str, Any]


class _BadValue(ValueError):
    """A text cannot be converted to a parameter's type."""


def _create_args_parser(
    cmpnt_fn: Callable[..., Any],
    cmpnt_defaults: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
) -> "argparse.ArgumentParser":
    """The parser of a component's arguments; clients use it to test ``--help``."""
    return _build_parser(cmpnt_fn, parameters(cmpnt_fn), cmpnt_defaults, config)


def _build_parser(
    cmpnt_fn: Callable[..., Any],
    declared: list[Parameter],
    cmpnt_defaults: dict[str, str] | None,
    config: dict[str, Any] | None,
) -> "ComponentParser":
    import argparse

    from torchx.specs._component_parser import ComponentParser, TorchXArgumentHelpFormatter

    name = getattr(cmpnt_fn, "__name__", "component")
    parser = ComponentParser(
        prog=f"torchx run <run args...> {name} ",
        formatter_class=TorchXArgumentHelpFormatter,
        add_help=False,  # a component may have a parameter h
    )
    parser.component = cmpnt_fn
    parser.add_argument(
        "--help", action="help", default=argparse.SUPPRESS, help="show this help message and exit"
    )
    given = {**(cmpnt_defaults or {}), **(config or {})}
    for parameter in declared:
        param_name = parameter.name
        if parameter.kind == "var_keyword":
            msg = (
                f"component fn param `{param_name}` is a '**kwargs' which is not supported;"
                " consider changing the type to a dict or explicitly declare the params"
            )
            raise TypeError(msg)
        if parameter.kind == "var_positional":
            # only for help: its values are split off before parsing
            parser.add_argument(param_name, nargs="*", metavar=param_name, type=str)
            continue
        default = given.get(param_name, parameter.default)
        required = default is EMPTY
        if isinstance(default, bool) and param_name not in (config or {}):
            default = str(default)
        try:
            parser.add_argument(
                *_option_strings(parameter),
                dest=param_name,
                type=get_argparse_param_type(parameter),
                required=required,
                default=None if required else default,
            )
        except argparse.ArgumentError as err:
            msg = f"parameter `{param_name}` of component `{name}` needs another name: {err}"
            raise ComponentValidationException(msg) from None
    return parser


def _option_strings(parameter: Parameter) -> list[str]:
    options = [f"--{parameter.name}"]
    if get_origin(parameter.annotation) is Annotated:
        extra = get_args(parameter.annotation)[1:]
        options += [e for e in extra if isinstance(e, str) and e.startswith("-")]
    elif len(parameter.name) == 1:
        options.append(f"-{parameter.name}")
    return options


def _var_arg_name(declared: list[Parameter]) -> str | None:
    return next((p.name for p in declared if p.kind == "var_positional"), None)


def _split_var_args(
    parser: "argparse.ArgumentParser", tokens: list[str]
) -> tuple[list[str], list[str]]:
    """Splits tokens into the component's options, and the rest from the first other token on."""
    options = [o for action in parser._actions for o in action.option_strings]
    at = 0
    while at < len(tokens):
        name, equals, _ = tokens[at].partition("=")
        known = name in options or (
            len(name) > 2 and name.startswith("--") and any(o.startswith(name) for o in options)
        )
        if not known:
            short = tokens[at][:2]
            if len(tokens[at]) > 2 and short in options and not tokens[at].startswith("--"):
                at += 1  # -xVALUE
                continue
            break
        at += 1 if equals or name == "--help" else 2
    return tokens[:at], tokens[at:]


def parse_args(
    cmpnt_fn: Callable[..., Any],
    cmpnt_args: list[str],
    cmpnt_defaults: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
) -> "argparse.Namespace":
    """Parses the command line of a component; values are text except for ``int`` and ``float``.

    Args:
        cmpnt_defaults: defaults that replace those of the signature, as text.
        config: values that replace both, typed.

    Raises:
        SystemExit: with code 2, after printing why, if the arguments are wrong.
    """
    declared = parameters(cmpnt_fn)
    parser = _build_parser(cmpnt_fn, declared, cmpnt_defaults, config)
    return _parse(parser, declared, cmpnt_args, cmpnt_defaults or {}, config or {})


def _parse(
    parser: "argparse.ArgumentParser",
    declared: list[Parameter],
    tokens: list[str],
    cmpnt_defaults: dict[str, Any],
    config: dict[str, Any],
) -> "argparse.Namespace":
    var_arg = _var_arg_name(declared)
    if var_arg is None:
        return parser.parse_args(tokens)
    own, rest = _split_var_args(parser, tokens)
    namespace = parser.parse_args(own)
    if not rest:
        given = config.get(var_arg, cmpnt_defaults.get(var_arg, ()))
        rest = given.split() if isinstance(given, str) else [str(g) for g in given or ()]
    setattr(namespace, var_arg, rest)
    return namespace


def component_args_from_str(
    cmpnt_fn: Callable[..., Any],
    cmpnt_args: list[str],
    cmpnt_args_defaults: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
) -> ComponentArgs:
    """Returns the typed arguments to call a component with. See ``parse_args``."""
    declared = parameters(cmpnt_fn)
    parser = _build_parser(cmpnt_fn, declared, cmpnt_args_defaults, config)
    namespace = _parse(parser, declared, cmpnt_args, cmpnt_args_defaults or {}, config or {})
    args = ComponentArgs({}, [], {})
    for parameter in declared:
        name = parameter.name
        value = getattr(namespace, name)
        if parameter.kind == "var_positional":
            args.var_args.extend(value[1:] if value[:1] == ["--"] else value)
            continue
        try:
            decoded = _decode(value, parameter.annotation)
        except _BadValue as err:
            parser.error(f"argument --{name}: {err}")
        if parameter.kind == "keyword_only":
            args.kwargs[name] = decoded
        else:
            args.positional_args[name] = decoded
    return args


def _decode(value: Any, annotation: Any) -> Any:
    """Converts a text to a typed value; typed values are returned unchanged."""
    tp = decode_optional(strip_annotated(annotation))
    if is_bool(tp):
        return _decode_bool(value)
    if value is None or not isinstance(value, str) or tp in (str, Any, EMPTY):
        return value
    if is_primitive(tp):
        return _convert(tp, value)
    return _decode_container(value, tp)


def _decode_bool(value: Any) -> Any:
    if not isinstance(value, str):
        return bool(value) if value in (0, 1) else value
    found = parse_bool(value.strip())
    if found is not None:
        return found
    words = f"{'/'.join(TRUE_WORDS)} or {'/'.join(FALSE_WORDS)}"
    msg = f"invalid bool value: {value!r}, write one of {words}"
    raise _BadValue(msg)


def _convert(tp: Any, text: str) -> Any:
    if is_bool(tp):
        return _decode_bool(text)
    try:
        return tp(text)
    except ValueError:
        msg = f"invalid {tp.__name__} value: {text!r}"
        raise _BadValue(msg) from None


def _decode_container(text: str, tp: Any) -> Any:
    origin, args = get_origin(tp), get_args(tp)
    if origin is list and is_primitive(args[0]):
        return [_convert(args[0], element) for element in to_list(text)] if text else None
    if origin is dict:
        if not text:
            return None
        try:
            pairs = to_dict(text)
        except ValueError as err:
            msg = f"{err}; write `key1=value1,key2=value2`"
            raise _BadValue(msg) from None
        return {_convert(args[0], k): _convert(args[1], v) for k, v in pairs.items()}
    if origin is list:
        msg = "List types support only primitives: int, str, float"
        raise ValueError(msg)
    msg = f"unsupported argument annotation `{tp}`, expected dict or list"
    raise ValueError(msg)


def _calling(component: Callable[..., AppDef]) -> AbstractContextManager[Any]:
    """Wraps a call of a component; built-in ones neither print nor end the process."""
    if str(getattr(component, "__module__", "")).startswith("torchx.components."):
        return nullcontext()
    from torchx._startup.foreign_code import component_code

    return component_code(f"component `{getattr(component, '__name__', component)}`")


def materialize_appdef(
    cmpnt_fn: Callable[..., AppDef],
    cmpnt_args: list[str],
    cmpnt_defaults: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
) -> AppDef:
    """Calls a component with the arguments of a command line.

    The command line wins over ``config``, which wins over ``cmpnt_defaults``, which win over the
    signature's defaults.

    Raises:
        SystemExit: with code 2, after printing why, if the arguments are wrong.
        ComponentValidationException: if the component calls ``sys.exit``.
        TypeError: if the component does not return an ``AppDef``.
    """
    args = component_args_from_str(cmpnt_fn, cmpnt_args, cmpnt_defaults, config)
    with _calling(cmpnt_fn):
        app = cmpnt_fn(*args.positional_args.values(), *args.var_args, **args.kwargs)
    if not isinstance(app, AppDef):
        msg = f"Expected a component that returns `AppDef`, but got `{type(app)}`"
        raise TypeError(msg)
    return app
