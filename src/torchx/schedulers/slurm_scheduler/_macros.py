"""Macros of a role, filled in here or left to the node on which a replica runs; quoting."""

import copy
import re
import shlex

from torchx.settings import ENV_TORCHX_RANK0_HOST
from torchx.specs._macros import MacroPlan
from torchx.specs.api import Role, macros

# what a macro is while others are filled in: arguments and variables cannot hold NUL
_APP_ID, _REPLICA_ID = "\0a", "\0k"
_LIVE = {_APP_ID: macros.app_id, _REPLICA_ID: macros.replica_id}
_DOLLARS_BEFORE_NAME = re.compile(r"(\$+)(?=\{(?:app_id|replica_id)\})")


def fill_macros(role: Role, img_root: str) -> Role:
    """A copy whose ``args`` and ``env`` hold only the macros that the node resolves."""
    values = macros.Values(
        img_root=img_root, app_id=_APP_ID, replica_id=_REPLICA_ID, rank0_env=ENV_TORCHX_RANK0_HOST
    )
    plan = MacroPlan(role)
    copied = copy.copy(role)
    copied.args = [_to_request(arg) for arg in plan.args(values)]
    copied.env = {name: _to_request(value) for name, value in plan.env(values).items()}
    return copied


def _to_request(text: str) -> str:
    """NUL-marked macros as ``${app_id}``, and such text itself as ``$${app_id}``."""
    if "\0" not in text and "{" not in text:
        return text
    text = _DOLLARS_BEFORE_NAME.sub(r"\1\1", text)
    for mark, macro in _LIVE.items():
        if mark in text:
            # what precedes a macro must not take its dollar away
            parts = [p + "$" * (len(p) - len(p.rstrip("$"))) for p in text.split(mark)[:-1]]
            text = macro.join([*parts, text.split(mark)[-1]])
    return text


def split_macros(text: str) -> list[str]:
    """Literal texts at even places, ``app_id`` or ``replica_id`` at odd ones.

    >>> split_macros("run_${app_id}_x$${app_id}")
    ['run_', 'app_id', '_x${app_id}']
    """
    parts = [""]
    at = 0
    for match in _MACRO.finditer(text):
        dollars, name = match.groups()
        parts[-1] += text[at : match.start()] + "$" * (len(dollars) // 2)
        at = match.end()
        if len(dollars) % 2:
            parts += [name, ""]
        else:
            parts[-1] += "{" + name + "}"
    parts[-1] += text[at:]
    return parts


_MACRO = re.compile(r"(\$+)\{(app_id|replica_id)\}")
_IN_SHELL = {"app_id": '"$SLURM_JOB_ID"', "replica_id": '"$SLURM_PROCID"'}


def quote_macros(text: str) -> str:
    """The text as a word of the shell, in which only the two macros are live.

    >>> quote_macros("hi ${app_id}")
    '\\'hi \\'"$SLURM_JOB_ID"\\'\\''
    >>> print(quote_macros("$HOME"))
    '$HOME'
    """
    if "{" not in text:
        return shlex.quote(text)
    parts = split_macros(text)
    return "".join(_IN_SHELL[part] if i % 2 else shlex.quote(part) for i, part in enumerate(parts))


def quote_line(text: str) -> str:
    """``quote_macros`` for a script that ``sbatch`` takes (see ``quote``)."""
    return _keep_cr(quote_macros(text))


def quote(text: str) -> str:
    """The text as a word of the shell, without carriage returns: ``sbatch`` refuses a script that
    has one before a newline. The script defines the variable for them."""
    return _keep_cr(shlex.quote(text))


def _keep_cr(quoted: str) -> str:
    """The word without the carriage returns, which it holds between single quotes."""
    return quoted.replace("\r", "'\"$torchx_cr\"'") if "\r" in quoted else quoted
