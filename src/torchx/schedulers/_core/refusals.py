"""Why an app could not be launched: found from the error by the same kind of rules as causes."""

import re
from collections.abc import Sequence

from torchx.errors import (
    BackendUnavailable,
    InvalidInput,
    NotInstalled,
    ProgramNotFound,
    TorchXError,
    UnsupportedRequest,
)
from torchx.specs.api import AppState

from .cause_rules import COMMON_REFUSALS
from .causes import Cause, Evidence, Explanation, Rule, first_line, matched

_OURS = re.compile(r"`[^`\n]*`")
"""Names that were given, as our messages quote them."""


def explain_refusal(err: TorchXError, backend: str, words: Sequence[Rule]) -> Explanation:
    """Why nothing was launched.

    Args:
        backend: name of the scheduler.
        words: what its backend's words for a refusal mean.
    """
    message = first_line(str(err)) or type(err).__name__
    text = _OURS.sub("`...`", str(err))
    found = matched((*words, *COMMON_REFUSALS), [text], None) or _by_kind(err, message)
    return Explanation(
        AppState.UNSUBMITTED,
        found.cause,
        found.means.replace("{scheduler}", backend),
        evidence=(Evidence("scheduler", str(err)),),
        do=tuple(text.replace("{scheduler}", backend) for text in found.do),
    )


def _by_kind(err: TorchXError, message: str) -> Rule:
    """The cause where words tell nothing."""
    doctor = ("torchx doctor -s {scheduler}",)
    if isinstance(err, NotInstalled):
        return Rule(Cause.LAUNCH_FAILED, "", message)
    if isinstance(err, ProgramNotFound):
        means = "a program that `{scheduler}` is reached by is not on this machine"
        return Rule(Cause.BACKEND_AWAY, "", means, doctor)
    if isinstance(err, BackendUnavailable):
        return Rule(Cause.BACKEND_AWAY, "", "`{scheduler}` cannot be reached", doctor)
    if isinstance(err, InvalidInput | UnsupportedRequest):
        return Rule(Cause.BAD_OPTION, "", message)
    return Rule(Cause.UNKNOWN, "", message)
