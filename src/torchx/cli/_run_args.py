"""The arguments of a run, from the command line or from JSON on stdin."""

import argparse
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torchx._startup.dataclass import field, fields, light_dataclass
from torchx._words import did_you_mean
from torchx.errors import InvalidInput
from torchx.specs import CfgVal
from torchx.util.types import decode_optional

if TYPE_CHECKING:
    import inspect

    from torchx.specs import AppDef

MISSING_COMPONENT_ERROR_MSG = (
    "missing component name: give one (`torchx run COMPONENT`), or set a default one with"
    " `component = NAME` in section [cli:run] of .torchxconfig;"
    " `torchx builtins` lists the built-in components"
)


@light_dataclass
class TorchXRunArgs:
    """The arguments of one run. The first three fields are required in JSON."""

    component_name: str
    scheduler: str
    scheduler_args: dict[str, Any]
    scheduler_cfg: dict[str, CfgVal] = field(default_factory=dict)
    dryrun: bool = False
    wait: bool = False
    log: bool = False
    workspace: str = ""
    parent_run_id: str | None = None
    tee_logs: bool = False
    component_args: dict[str, Any] = field(default_factory=dict)
    component_args_str: list[str] = field(default_factory=list)
    strict: bool = False


def torchx_run_args_from_json(json_data: dict[str, Any]) -> TorchXRunArgs:
    """Reads the fields of `TorchXRunArgs` by name; an empty workspace becomes the cwd.

    Raises:
        ValueError: if a required field is missing or a field is not known.
    """
    required = ("component_name", "scheduler", "scheduler_args")
    missing = [name for name in required if name not in json_data]
    if missing:
        msg = f"The following required fields are missing: {', '.join(missing)}"
        raise InvalidInput(msg)
    known = [f.name for f in fields(TorchXRunArgs)]
    unknown = [name for name in json_data if name not in known]
    if unknown:
        msg = f"The following fields are not part of the run command: {', '.join(unknown)}."
        raise InvalidInput(msg + "".join(did_you_mean(name, known) for name in unknown))
    _check_field_types(json_data)
    args = TorchXRunArgs(**json_data)
    if not args.workspace:
        args.workspace = os.getcwd()
    return args


def torchx_run_args_from_argparse(
    args: argparse.Namespace,
    component_name: str,
    component_args: list[str],
    scheduler_cfg: dict[str, CfgVal],
) -> TorchXRunArgs:
    """Builds the arguments from the flags; `scheduler_cfg` holds the parsed ``-cfg``."""
    return TorchXRunArgs(
        component_name=component_name,
        scheduler=args.scheduler,
        scheduler_args={},
        scheduler_cfg=scheduler_cfg,
        dryrun=args.dryrun,
        wait=args.wait,
        log=args.log,
        workspace=args.workspace,
        parent_run_id=args.parent_run_id,
        tee_logs=args.tee_logs,
        component_args={},
        component_args_str=component_args,
        strict=getattr(args, "strict", False),
    )


def check_component_args(
    fn: "Callable[..., AppDef]", component_name: str, given: Mapping[str, Any]
) -> None:
    """Refuses values for unknown parameters of the component, and of the wrong type."""
    import inspect

    parameters = inspect.signature(fn).parameters
    for name, value in given.items():
        parameter = parameters.get(name)
        if parameter is None:
            msg = (
                f"component `{component_name}` has no parameter `{name}`,"
                f" it has: {', '.join(parameters) or 'none'}."
            )
            raise InvalidInput(msg + did_you_mean(name, parameters))
        if not _fits(value, parameter):
            msg = (
                f"parameter `{name}` of component `{component_name}` takes"
                f" `{inspect.formatannotation(parameter.annotation)}`, given: {value!r}"
            )
            raise InvalidInput(msg)


def repeated_options(args: Iterable[str]) -> list[str]:
    """Returns option names that occur more than once before the first ``--``, in order.

    Text after ``--`` is not checked, nor are numbers: ``echo -1 -1`` is valid.
    """
    counts: dict[str, int] = {}
    for arg in args:
        if arg == "--":
            break
        if arg.startswith("-") and arg.strip() not in ("-", "--") and not _is_number(arg):
            counts[arg] = counts.get(arg, 0) + 1
    return [arg for arg, count in counts.items() if count > 1]


def component_start(
    tokens: list[str], flags: Mapping[str, bool], default_component: Callable[[], str | None]
) -> int:
    """Returns the index of the component in the arguments of ``torchx run``.

    Args:
        flags: the command's own option strings, and whether each takes a value.
        default_component: called only for an option that is not ours; if there is a default
            component, that option and all after it belong to the component.
    """
    i = 0
    while i < len(tokens):
        token = tokens[i]
        if not token.startswith("-") or token in ("-", "--"):
            return i
        takes_value = _takes_separate_value(token, flags)
        if takes_value is None and default_component():
            return i
        i += 2 if takes_value else 1
    return len(tokens)


def _takes_separate_value(token: str, flags: Mapping[str, bool]) -> bool | None:
    """Returns True if the next token is this option's value; `None` if the option is not ours."""
    name, equals, _ = token.partition("=")
    if name in flags:
        return flags[name] and not equals
    if token.startswith("--"):
        matches = {flags[flag] for flag in flags if flag.startswith(name)}
        return None if not matches else True in matches and not equals
    if any(flag.startswith(name) and not flag.startswith("--") for flag in flags):  # `-c` is `-cfg`
        return not equals
    return False if token[:2] in flags else None  # `-sNAME`


def _check_field_types(json_data: dict[str, Any]) -> None:
    expected: dict[str, type] = {
        "component_name": str,
        "scheduler": str,
        "scheduler_args": dict,
        "scheduler_cfg": dict,
        "dryrun": bool,
        "wait": bool,
        "log": bool,
        "workspace": str,
        "tee_logs": bool,
        "component_args": dict,
        "component_args_str": list,
        "strict": bool,
    }
    for name, kind in expected.items():
        if name in json_data and not isinstance(json_data[name], kind):
            msg = f"field `{name}` must be of JSON type {kind.__name__}, given: {json_data[name]!r}"
            raise InvalidInput(msg)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _fits(value: object, parameter: "inspect.Parameter") -> bool:
    """Returns True if the JSON value is valid for the parameter."""
    annotation = parameter.annotation
    if parameter.kind is parameter.VAR_POSITIONAL:
        return isinstance(value, list) and all(_is_a(item, annotation) for item in value)
    annotation = (
        getattr(annotation, "__origin__", annotation) if _annotated(annotation) else annotation
    )
    inner = decode_optional(annotation)
    if value is None:
        return inner is not annotation or parameter.default is None
    return _is_a(value, inner)


def _annotated(annotation: Any) -> bool:  # any type expression
    return hasattr(annotation, "__metadata__")


def _is_a(value: object, annotation: Any) -> bool:  # any type expression
    import typing

    origin = typing.get_origin(annotation) or annotation
    parts = typing.get_args(annotation)
    if origin is list:
        item = parts[0] if parts else str
        return isinstance(value, list) and all(_is_a(entry, item) for entry in value)
    if origin is dict:
        item = parts[1] if len(parts) == 2 else str
        return isinstance(value, dict) and all(_is_a(entry, item) for entry in value.values())
    if origin is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if origin in (int, str, bool):
        return isinstance(value, origin) and (origin is bool or not isinstance(value, bool))
    return True  # the component itself decides what it accepts
