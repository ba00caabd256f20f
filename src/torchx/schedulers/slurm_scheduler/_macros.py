"""Fills in the macros of a role, here or on the node of a replica; quotes text for the shell."""

import copy
import re
import shlex

from torchx.settings import ENV_TORCHX_RANK0_HOST
from torchx.specs._macros import MacroPlan
from torchx.specs.api import Role, macros

# placeholder for a macro while others are filled in: arguments and variables cannot have NUL
_APP_ID, _REPLICA_ID = "\0a", "\0k"
_LIVE = {_APP_ID: macros.app_id, _REPLICA_ID: macros.replica_id}
_DOLLARS_BEFORE_NAME = re.compile(r"(\$+)(?=\{(?:app_id|replica_id)\})")


def fill_macros(role: Role, img_root: str) -> Role:
    """Returns a copy whose ``args`` and ``env`` have only the macros that the node resolves."""
    values = macros.Values(
        img_root=img_root, app_id=_APP_ID, replica_id=_REPLICA_ID, rank0_env=ENV_TORCHX_RANK0_HOST
    )
    plan = MacroPlan(role)
    copied = copy.copy(role)
    copied.args = [_to_request(arg) for arg in plan.args(values)]
    copied.env = {name: _to_request(value) for name, value in plan.env(values).items()}
    return copied


def _to_request(text: str) -> str:
    """Converts NUL-marked macros to ``${app_id}``, and escapes such text as ``$${app_id}``."""
    if "\0" not in text and "{" not in text:
        return text
    text = _DOLLARS_BEFORE_NAME.sub(r"\1\1", text)
    for mark, macro in _LIVE.items():
        if mark in text:
            # the text before a macro must not consume its dollar
            parts = [p + "$" * (len(p) - len(p.rstrip("$"))) for p in text.split(mark)[:-1]]
            text = macro.join([*parts, text.split(mark)[-1]])
    return text


def split_macros(text: str) -> list[str]:
    """Splits a text: literals at even indices, ``app_id`` or ``replica_id`` at odd ones.

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
    """Quotes a text for the shell so that only the two macros are expanded.

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
    """Does ``quote_macros`` for a script that ``sbatch`` accepts (see ``quote``)."""
    return _keep_cr(quote_macros(text))


def quote(text: str) -> str:
    """Quotes a text for the shell, without carriage returns: ``sbatch`` refuses a script that has
    one before a newline. The script defines a variable for them.
    """
    return _keep_cr(shlex.quote(text))


def _keep_cr(quoted: str) -> str:
    """Replaces the carriage returns of a single-quoted word."""
    return quoted.replace("\r", "'\"$torchx_cr\"'") if "\r" in quoted else quoted
