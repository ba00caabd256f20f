"""Parses the arguments of a script: its entry point and hyperparameters. Pure."""

import json
from collections.abc import Mapping, Sequence

from torchx.errors import InvalidInput

MODULE_LAUNCHER = "torchx_run_module.py"
"""File of the source that runs a module: the toolkit in the images only starts files."""
_MOST_HYPERPARAMETERS = 100
_KEY_CHARS = 256
_VALUE_CHARS = 2500
_CONTAINER = "; launch=container runs the role's entrypoint and args as they are"


def parse_args(args: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Parses the entry point, and the named arguments in order.

    >>> parse_args(["-m", "pkg.train", "--lr=1e-3", "--tag", "a=b"])
    ('-m pkg.train', {'lr': '1e-3', 'tag': 'a=b'})

    Raises:
        InvalidInput: if there is no script, or an argument without name or value.
    """
    if not args:
        raise InvalidInput(f"the role has no args: launch=script needs a script{_CONTAINER}")
    entry, rest = args[0], list(args[1:])
    if entry == "-m":
        if not rest:
            raise InvalidInput(f"`-m` needs the name of a module behind it{_CONTAINER}")
        entry = f"-m {rest.pop(0)}"
    found: dict[str, str] = {}
    while rest:
        name = rest.pop(0)
        if not name.startswith("--"):
            msg = f"args of a script must be --name=value or --name value, given: `{name}`"
            raise InvalidInput(msg + _CONTAINER)
        key, equals, value = name[2:].partition("=")
        if not equals:
            if not rest:
                raise InvalidInput(f"argument `{name}` needs a value behind it{_CONTAINER}")
            value = rest.pop(0)
        found[key] = value
    return entry, found


def module_of(entry: str) -> str | None:
    """Returns the module of the entry point; ``None`` for a script."""
    return entry.removeprefix("-m ") if entry.startswith("-m ") else None


def build_hyperparameters(
    given: Mapping[str, str], of_service: Mapping[str, object]
) -> dict[str, str]:
    """Encodes hyperparameters for the images' toolkit: each value is JSON.

    Args:
        of_service: parameters for the toolkit itself.

    Raises:
        InvalidInput: for too many or too long ones.
    """
    found = {key: json.dumps(value) for key, value in {**given, **of_service}.items()}
    if len(found) > _MOST_HYPERPARAMETERS:
        most = _MOST_HYPERPARAMETERS - len(of_service)
        msg = f"a script has at most {most} arguments and hyperparameters, given: {len(given)}"
        raise InvalidInput(msg + _CONTAINER)
    for key, value in found.items():
        if len(key) > _KEY_CHARS or len(value) > _VALUE_CHARS:
            msg = (
                f"argument `{key:.60}` of the script is too long: SageMaker takes names of"
                f" {_KEY_CHARS} and values of {_VALUE_CHARS} characters in JSON, given:"
                f" {len(key)} and {len(value)}"
            )
            raise InvalidInput(msg + _CONTAINER)
    return found
