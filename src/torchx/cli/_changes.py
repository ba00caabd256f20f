"""Applies changes from flags to an app, and shows the difference."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torchx._words import did_you_mean
from torchx.cli import _secrets
from torchx.errors import InvalidInput
from torchx.specs import AppDef, Role


def add_changes(subparser: argparse.ArgumentParser) -> None:
    """Adds the flags that change an app."""

    def flag(name: str, text: str, metavar: str, **more: object) -> None:
        subparser.add_argument(name, metavar=metavar, help=text, **more)  # type: ignore[arg-type]  # argparse's own keywords

    flag("--role", "change only this role (default: all roles)", "NAME")
    flag("--name", "another name of the app", "NAME")
    flag("--image", "another image", "IMAGE")
    flag("--env", "set a variable; may be repeated", "NAME=VALUE", action="append", default=[])
    flag("--unset-env", "unset a variable", "NAME", action="append", default=[])
    flag("--add-arg", "one more argument of the program", "ARG", action="append", default=[])
    flag("--replicas", "another number of replicas", "N", type=_count)
    flag("--retries", "another number of retries", "N", type=_count)
    flag("--cpu", "CPUs of a replica", "N", type=float)
    flag("--gpu", "GPUs of a replica", "N", type=_count)
    flag("--mem", "memory of a replica", "MB", type=_count)


def changed(app: AppDef, args: argparse.Namespace, words: Sequence[str]) -> AppDef:
    """Returns a copy of the app with the changes of the flags.

    Args:
        words: arguments that replace the program's recorded ones; empty to keep those.

    Raises:
        InvalidInput: if there is no such role, or a change is invalid.
    """
    names = [role.name for role in app.roles]
    if args.role is not None and args.role not in names:
        msg = f"the app has no role `{args.role}`, it has: {', '.join(names)}."
        raise InvalidInput(msg + did_you_mean(args.role, names))
    if words and args.role is None and len(names) > 1:
        msg = f"which role gets these arguments? Add `--role NAME`, one of {', '.join(names)}"
        raise InvalidInput(msg)
    roles = [
        _changed(role, args, words) if args.role in (None, role.name) else role
        for role in app.roles
    ]
    return AppDef(args.name or app.name, roles, dict(app.metadata))


def _changed(role: Role, args: argparse.Namespace, words: Sequence[str]) -> Role:
    env = {**role.env, **dict(_pair(text) for text in args.env)}
    for name in args.unset_env:
        env.pop(name, None)
    given = {
        "image": args.image,
        "num_replicas": args.replicas,
        "max_retries": args.retries,
    }
    resource = {"cpu": args.cpu, "gpu": args.gpu, "memMB": args.mem}
    sizes = {name: value for name, value in resource.items() if value is not None}
    new = replace(role, **{name: value for name, value in given.items() if value is not None})
    new.args = [*(words or role.args), *args.add_arg]
    new.env = env
    if sizes:
        new.resource = replace(role.resource, **sizes)
    if new.min_replicas is not None and new.min_replicas > new.num_replicas:
        new.min_replicas = new.num_replicas
    return new


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InvalidInput(f"`--env {text}`: write NAME=VALUE")
    return name, value


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"`{text}` is not a number, write 0 or more")
    return int(text)


def difference(
    before: Mapping[str, object], after: Mapping[str, object], secrets: bool
) -> list[str]:
    """Returns the differences as lines ``- name: value`` and ``+ name: value``, sorted by name.

    Args:
        secrets: show values that look like secrets.
    """
    old, new = dict(_flat(before)), dict(_flat(after))
    lines = []
    for name in dict.fromkeys([*old, *new]):
        if old.get(name, _ABSENT) == new.get(name, _ABSENT):
            continue
        for sign, side in (("-", old), ("+", new)):
            if name in side:
                key = name.rpartition(".")[2]
                hidden = not secrets and _secrets.mask_data({key: str(side[name])})[key] == "***"
                lines.append(f"{sign} {name}: {'***' if hidden else side[name]}")
    return lines


_ABSENT = object()


def _flat(data: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yields all values with their paths; roles are addressed by name."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(data, list):
        for i, value in enumerate(data):
            name = value.get("name", i) if isinstance(value, Mapping) else i
            yield from _flat(value, f"{prefix}.{name}")
    else:
        yield prefix, data
