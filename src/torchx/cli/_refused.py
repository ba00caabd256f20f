"""The messages of the command line about jobs that could not be launched."""

import sys
from typing import TYPE_CHECKING

from torchx.cli._look import Look

if TYPE_CHECKING:
    from torchx.schedulers.causes import Explanation


def lines(found: "Explanation", message: str) -> list[str]:
    """Returns the cause in one line, and the advice; empty if the message already has them."""
    if found.summary in message:
        return []
    look = Look(sys.stderr)
    return [f"why: {found.line}", *(f"  {look.sign('arrow')} {text}" for text in found.do)]


def to_json(found: "Explanation") -> dict[str, object]:
    """Returns the fields of an error's JSON beside its message."""
    return {"cause": found.cause.value, "summary": found.summary, "do": [*found.do]}
