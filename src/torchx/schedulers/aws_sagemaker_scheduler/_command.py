"""Fits the command of a container into the service's limits. Pure.

A training job has one command for all its instances, of at most 100 words of 256 characters, none
of them with a line break. A longer command, or one with line breaks or that depends on the
instance, becomes a script that is cut into words and joined by ``sh``.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from torchx._startup.dataclass import light_dataclass
from torchx.errors import InvalidInput

WORD_CHARS = 256
MOST_WORDS = 100
REPLICA_MARK = "\ue000torchx-replica\ue000"
"""Placeholder for the replica's index, which ``sh`` on its instance fills in."""
_BREAKS = re.compile("([\n\r\x85\u2028\u2029])")
"""Characters that the service's pattern ``.*`` does not match."""

_JOIN = '_torchx=; for _torchx_p do _torchx="$_torchx$_torchx_p"; done; eval "$_torchx"'
_JOINED = ["sh", "-c", _JOIN, "sh"]
# the number in `algo-3` is that of the host, from 1; the toolkit's variable names the directory
_REPLICA = (
    '_torchx_k=$(sed -n \'s/.*"current_host" *: *"algo-\\([0-9]*\\)".*/\\1/p\''
    ' "${SM_INPUT_CONFIG_DIR:-/opt/ml/input/config}/resourceconfig.json");'
    ' [ -n "$_torchx_k" ] || { echo "torchx: no number of this host in resourceconfig.json" >&2;'
    " exit 1; }; _torchx_k=$((_torchx_k - 1));"
)


@light_dataclass(frozen=True)
class Command:
    """``ContainerEntrypoint`` and ``ContainerArguments`` of a job."""

    entrypoint: list[str]
    arguments: list[str]


def build_command(role: str, words: Sequence[str], env: Mapping[str, str]) -> Command:
    """Builds the command of a role.

    Args:
        words: program and arguments; ``REPLICA_MARK`` in them stands for the replica's index.
        env: variables whose values hold that mark.

    Raises:
        InvalidInput: if it is too long for a job.
    """
    if not env and not any(map(_needs_shell, words)) and len(words) <= MOST_WORDS + 1:
        return Command([words[0]], list(words[1:]))
    script = _script(words, env)
    # characters beyond the first 65,536 count twice where words are kept in UTF-16
    step = WORD_CHARS if script.isascii() else WORD_CHARS // 2
    if len(script) > step * MOST_WORDS:
        msg = (
            f"the command of role `{role}` has {len(script):,} characters for the shell, and a"
            f" training job takes at most {step * MOST_WORDS:,}: put it into a file of the image"
        )
        raise InvalidInput(msg)
    pieces = [script[i : i + step] for i in range(0, len(script), step)]
    return Command([*_JOINED], pieces)


def cut_script(algorithm: Mapping[str, Any]) -> str | None:
    """Returns the script of a command that was cut into words; ``None`` if it was not.

    Args:
        algorithm: ``AlgorithmSpecification`` of a request or of a job.
    """
    if algorithm.get("ContainerEntrypoint") != _JOINED:
        return None
    return "".join(algorithm["ContainerArguments"])


def _needs_shell(word: str) -> bool:
    units = len(word.encode("utf-16-le", "surrogatepass")) // 2
    return units > WORD_CHARS or REPLICA_MARK in word or bool(_BREAKS.search(word))


def _script(words: Sequence[str], env: Mapping[str, str]) -> str:
    texts = [*words, *env.values()]
    parts = []
    breaks = sorted({char for text in texts for char in _BREAKS.findall(text)})
    for char in breaks:
        octal = "".join(f"\\{byte:03o}" for byte in char.encode())
        name = _break_name(char)
        parts.append(f"{name}=$(printf '{octal}x'); {name}=${{{name}%x}};")
    if any(REPLICA_MARK in text for text in texts):
        parts.append(_REPLICA)
    parts += [f"export {name}={_quoted(value)};" for name, value in env.items()]
    parts.append("exec " + " ".join(map(_quoted, words)))
    return " ".join(parts)


def _break_name(char: str) -> str:
    return f"_torchx_{ord(char)}"


def _quoted(text: str) -> str:
    """Quotes a word of the script, on one line."""
    quoted = []
    for i, part in enumerate(text.split(REPLICA_MARK)):
        if i:
            quoted.append('"$_torchx_k"')
        for j, piece in enumerate(_BREAKS.split(part)):
            if j % 2:
                quoted.append(f'"${_break_name(piece)}"')
            elif piece:
                quoted.append(shlex.quote(piece))
    return "".join(quoted) or "''"
