"""What AWS's refusals mean, whichever of its services refuses."""

from torchx.schedulers._core.causes import Cause, Rule

NO_CREDENTIALS = Rule(
    Cause.ACCESS_DENIED,
    r"no credentials for AWS|credentials for AWS have expired|does not accept the credentials",
    "the credentials for AWS are missing, or have expired",
    (
        "aws sso login  # or set AWS_PROFILE, or give -cfg profile=...",
        "torchx doctor -s {scheduler}",
    ),
)
NOT_ALLOWED = Rule(
    Cause.ACCESS_DENIED,
    r"is not authorized to perform: (?P<action>[\w:-]+)|AccessDenied|UnauthorizedOperation",
    "your user or role may not do that on AWS",
    ("aws sts get-caller-identity", "Ask for the right that the message names"),
)
REFUSED = Rule(Cause.UNKNOWN, r" was refused: ", "AWS refuses the job")
"""The last one: it tells nothing but that."""
