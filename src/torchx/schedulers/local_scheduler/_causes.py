"""What the words of the supervisor of local jobs mean."""

from torchx.schedulers._core.causes import Cause, Rule

RULES = (
    Rule(Cause.RETRYING, r"^retry \d+ begins after", "it failed, and starts again in a moment"),
    Rule(
        Cause.KILLED,
        r"the process that supervised this job .*(was killed|ended|died|is gone)",
        "the process that looks after it was killed, and its replicas were ended",
        ("Run it again; `dmesg` tells whether the kernel was out of memory",),
    ),
    Rule(
        Cause.NODE_LOST,
        r"machine (was )?restarted|since this machine started|reboot",
        "the machine was restarted while it ran",
        ("Run it again",),
    ),
    Rule(
        Cause.UNKNOWN,
        r"the record of this job in .* is damaged",
        "its record is damaged",
        ("torchx delete {app}",),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"a restart failed: (?P<problem>.+)",
        "it could not be started again: {problem}",
    ),
)
