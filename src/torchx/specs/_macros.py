"""Placeholders in a role that the scheduler fills in for each replica."""

import copy
from collections.abc import Collection
from typing import Any

from torchx._startup.dataclass import light_dataclass
from torchx.specs._app import Role, copy_role


class macros:
    """Placeholders for ``Role.args``, ``Role.env`` and ``Role.metadata``.

    >>> from torchx.specs import Role, macros
    >>> role = Role("w", "img", entrypoint="run", args=["--id", macros.replica_id])
    >>> macros.Values(img_root="", app_id="j", replica_id="3", rank0_env="R0").apply(role).args
    ['--id', '3']
    """

    img_root = "${img_root}"
    """Root directory of the image."""
    base_img_root = "${base_img_root}"
    """Deprecated."""
    app_id = "${app_id}"
    """Id that the scheduler gave the app."""
    replica_id = "${replica_id}"
    """Index of the replica in its role, from 0; a replacement keeps it."""
    rank0_env = "${rank0_env}"
    """Name of the environment variable that holds the host of the first replica."""

    @light_dataclass
    class Values:
        """The values of the placeholders for one replica."""

        img_root: str
        app_id: str
        replica_id: str
        rank0_env: str
        base_img_root: str = "DEPRECATED"

        def apply(self, role: Role) -> Role:
            """Returns a copy of the role with the placeholders filled in."""
            values = self.to_dict()
            copied = copy_role(role, own=("args", "env", "metadata"))
            fields = vars(copied)
            fields["args"] = [_fill(arg, values) for arg in role.args]
            fields["env"] = {name: _fill(value, values) for name, value in role.env.items()}
            metadata = role.metadata
            fields["metadata"] = _fill_metadata(metadata, values) if metadata else {}
            return copied

        def substitute(self, arg: str) -> str:
            """Returns the text with its placeholders filled in; unknown ones are kept."""
            return _fill(arg, self.to_dict())

        def to_dict(self) -> dict[str, Any]:
            """Returns the values by name."""
            return {
                "img_root": self.img_root,
                "app_id": self.app_id,
                "replica_id": self.replica_id,
                "rank0_env": self.rank0_env,
                "base_img_root": self.base_img_root,
            }


class MacroPlan:
    """The arguments and variables of a role that hold placeholders, found once per role.

    Only those are then filled in for each replica, which matters for 10,000 replicas.
    """

    def __init__(self, role: Role) -> None:
        self._args = role.args
        self._env = role.env
        self._varying_args = [i for i, arg in enumerate(role.args) if "$" in arg]
        self._varying_env = [name for name, value in role.env.items() if "$" in value]

    def args(self, values: macros.Values) -> list[str]:
        """Returns the arguments of one replica, as a new list."""
        args = list(self._args)
        if self._varying_args:
            known = values.to_dict()
            for i in self._varying_args:
                args[i] = _fill(args[i], known)
        return args

    def env(self, values: macros.Values) -> dict[str, str]:
        """Returns the environment of one replica, as a new dict."""
        env = dict(self._env)
        if self._varying_env:
            known = values.to_dict()
            for name in self._varying_env:
                env[name] = _fill(env[name], known)
        return env


def _fill_metadata(value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, str):
        return _fill(value, values)
    if isinstance(value, dict):
        return {k: _fill_metadata(v, values) for k, v in value.items()}
    if isinstance(value, list):
        return [
            _fill_metadata(v, values) if isinstance(v, (str, dict)) else copy.deepcopy(v)
            for v in value
        ]
    return copy.deepcopy(value)


def _fill(text: str, values: dict[str, Any]) -> str:
    """Does ``string.Template(text).safe_substitute(values)``, an order of magnitude faster."""
    if not isinstance(text, str) or "$" not in text:
        return text
    parts = _parsed.get(text)
    if parts is None:
        parts = _parse(text, values)
        if len(_parsed) >= _MOST_PARSED:
            _parsed.clear()
        _parsed[text] = parts
    if len(parts) == 1:
        return parts[0]
    filled = list(parts)
    for i in range(1, len(parts), 2):
        filled[i] = str(values[parts[i]])
    return "".join(filled)


_parsed: "dict[str, list[str]]" = {}
"""Texts in pieces: the same ones are filled for every replica."""

_MOST_PARSED = 4096


def _parse(text: str, known: Collection[str]) -> list[str]:
    """Splits a text: literal pieces at even indices, names of placeholders at odd ones."""
    out = [""]
    parts = text.split("$")
    out[-1] += parts[0]
    at = 1
    while at < len(parts):
        part = parts[at]
        at += 1
        if not part and at < len(parts):  # "$$"
            out[-1] += "$" + parts[at]
            at += 1
            continue
        name, rest = _placeholder(part)
        if name in known:
            out += (name, rest)
        else:
            out[-1] += "$" + part
    return out


def _placeholder(part: str) -> tuple[str, str]:
    """Splits the text after a ``$`` into the placeholder's name, ``""`` if none, and the rest."""
    if part.startswith("{"):
        name, brace, rest = part[1:].partition("}")
        return (name, rest) if brace else ("", part)
    end = 0
    while end < len(part) and (part[end] == "_" or (part[end].isascii() and part[end].isalnum())):
        end += 1
    return part[:end], part[end:]
