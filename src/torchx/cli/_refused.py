"""What the command line says about why a job could not be launched."""

import sys
from typing import TYPE_CHECKING

from torchx.cli._look import Look

if TYPE_CHECKING:
    from torchx.schedulers.causes import Explanation


def lines(found: "Explanation", message: str) -> list[str]:
    """The cause in one line, and what to do; nothing where the message has said it."""
    if found.summary in message:
        return []
    look = Look(sys.stderr)
    return [f"why: {found.line}", *(f"  {look.sign('arrow')} {text}" for text in found.do)]


def to_json(found: "Explanation") -> dict[str, object]:
    """What the JSON of an error holds beside its message."""
    return {"cause": found.cause.value, "summary": found.summary, "do": [*found.do]}
