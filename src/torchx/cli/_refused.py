"""The messages of the command line about jobs that could not be launched."""

import sys
from typing import TYPE_CHECKING

from torchx.cli import _output
from torchx.cli._explained import hint_lines
from torchx.cli._look import Look

if TYPE_CHECKING:
    from torchx.schedulers.causes import Explanation


def lines(found: "Explanation", message: str) -> list[str]:
    """The cause and what to do, off a terminal in one line; nothing if the message has said it."""
    if found.summary in message:
        return []
    look = Look(sys.stderr)
    if not _output.is_calm():
        return [f" {look.sign('arrow')} ".join([f"why: {found.line}", *found.do])]
    text = f"  {look.bold(found.cause.value)}: {found.summary}"
    return [*look.wrap(text, "  "), *hint_lines(look, found.do)]


def to_json(found: "Explanation") -> dict[str, object]:
    """Returns the fields of an error's JSON beside its message."""
    return {"cause": found.cause.value, "summary": found.summary, "do": [*found.do]}
