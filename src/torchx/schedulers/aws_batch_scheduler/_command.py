"""The command and the variables of a role's containers. Pure.

All nodes of a group have one command. Differences between them come from variables of the service:
only if a macro needs one, or a variable is empty, the command is started by ``sh``.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchx.errors import InvalidInput
from torchx.settings import (
    ENV_TORCHX_ATTEMPT,
    ENV_TORCHX_IMAGE,
    ENV_TORCHX_RANK0_HOST,
    ENV_TORCHX_ROLE_IDX,
    ENV_TORCHX_ROLE_NAME,
)
from torchx.specs.api import Role, macros

NODE_INDEX = "AWS_BATCH_JOB_NODE_INDEX"
MAIN_NODE_HOST = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"
"""Host of the main node; the service does not set it on that node itself."""
ATTEMPT = "AWS_BATCH_JOB_ATTEMPT"
"""Number of the attempt, the first is 1."""
RESERVED = "AWS_BATCH"
"""Prefix of variables that only the service may set."""

_REPLICA = "\0k"
"""Placeholder for the replica's id while texts are filled in: texts of roles have no NUL."""
_RANK0 = "\0r"
_IN_SHELL = '"$torchx_k"'
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Place:
    """The position of a role in the job.

    Args:
        index: of the role in the app.
        first: index of its first node; ``None`` for a job of one container.
        retried: True if there may be several attempts.
    """

    index: int
    first: int | None = None
    retried: bool = False


def build_command(role: Role, app_id: str, place: Place) -> dict[str, Any]:
    """Builds ``command`` and ``environment`` of the containers of a role.

    Raises:
        InvalidInput: for a variable that only the service may set, or that a shell cannot set.
    """
    rank0_env = ENV_TORCHX_RANK0_HOST if place.first is None else MAIN_NODE_HOST
    texts = _Texts(role, app_id, rank0_env)
    args = [role.entrypoint, *(texts.fill(arg) for arg in role.args)]
    env = {name: texts.fill(value) for name, value in role.env.items()}
    _check_names(role, env)
    if place.first is None:
        env.setdefault(ENV_TORCHX_RANK0_HOST, "localhost")
    env[ENV_TORCHX_ROLE_IDX] = str(place.index)
    env[ENV_TORCHX_ROLE_NAME] = role.name
    env[ENV_TORCHX_IMAGE] = role.image
    # the service drops empty variables
    in_shell = {name: value for name, value in env.items() if not value or _REPLICA in value}
    lines = _prefix(role, place, texts, in_shell)
    if lines:
        line = " ".join(_quoted(arg) for arg in args)
        args = ["sh", "-c", "; ".join([*lines, f"exec {line}"])]
    fixed = [(name, value) for name, value in env.items() if name not in in_shell]
    return {
        "command": args,
        "environment": [{"name": name, "value": value} for name, value in fixed],
    }


class _Texts:
    """Fills in the macros of a role for all of its replicas, and records which were used."""

    def __init__(self, role: Role, app_id: str, rank0_env: str) -> None:
        replica_id = _REPLICA if role.num_replicas > 1 else "0"
        self._rank0_env = rank0_env
        self._values = macros.Values("", app_id, replica_id, _RANK0)
        self.replica = False
        self.rank0 = False

    def fill(self, text: str) -> str:
        """Returns the text with a mark in place of the replica's id."""
        filled = self._values.substitute(text)
        self.replica = self.replica or _REPLICA in filled
        if _RANK0 in filled:
            self.rank0 = True
            filled = filled.replace(_RANK0, self._rank0_env)
        return filled


def _prefix(role: Role, place: Place, texts: _Texts, in_shell: Mapping[str, str]) -> list[str]:
    """Returns the shell code before the command; empty if none is needed."""
    lines = []
    if texts.replica:
        lines.append(f"torchx_k=$(({NODE_INDEX} - {place.first or 0}))")
    if texts.rank0 and place.first == 0:
        lines.append(f'export {MAIN_NODE_HOST}="${{{MAIN_NODE_HOST}:-localhost}}"')
    if place.retried and ENV_TORCHX_ATTEMPT not in role.env:
        lines.append(f"export {ENV_TORCHX_ATTEMPT}=$((${{{ATTEMPT}:-1}} - 1))")
    for name, value in in_shell.items():
        if not _VARIABLE.fullmatch(name):
            msg = (
                f"role `{role.name}`: the value of `{name}` is empty or differs between replicas, "
                "and a shell cannot set a variable of that name: use letters, digits and _"
            )
            raise InvalidInput(msg)
        lines.append(f"export {name}={_quoted(value)}")
    return lines


def _quoted(text: str) -> str:
    """Quotes a text for the shell so that only the replica's id is expanded.

    >>> print(_quoted("a b$"), _quoted("id" + chr(0) + "k"))
    'a b$' id"$torchx_k"
    """
    if _REPLICA not in text:
        return shlex.quote(text)
    return _IN_SHELL.join(shlex.quote(part) if part else "" for part in text.split(_REPLICA))


def _check_names(role: Role, env: Mapping[str, str]) -> None:
    for name in env:
        if name.startswith(RESERVED):
            msg = (
                f"role `{role.name}`: variables that begin with {RESERVED} are set by the "
                f"service, choose another name than `{name}`"
            )
            raise InvalidInput(msg)
