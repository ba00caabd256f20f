"""Rules for messages of the supervisor of local jobs."""

from torchx.schedulers._core.causes import Cause, Rule

RULES = (
    Rule(Cause.RETRYING, r"^retry \d+ begins after", "it failed, and starts again in a moment"),
    Rule(
        Cause.KILLED,
        r"^the process(es)? that (supervised|guards) this job\b.* (was|were) killed"
        r"|^the process that supervised this job \(pid \d+\) exited with code",
        "the process that looks after it was killed, and its replicas were ended",
        ("Run it again; `dmesg` tells whether the kernel was out of memory",),
    ),
    Rule(
        Cause.NODE_LOST,
        r"^the machine was restarted while this job ran",
        "the machine was restarted while it ran",
        ("Run it again",),
    ),
    Rule(
        Cause.UNKNOWN,
        r"^the record of this job in .* is damaged",
        "its record is damaged",
        ("torchx delete {app}",),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"^a restart failed: (?P<problem>.+)",
        "it could not be started again: {problem}",
    ),
)
"""Of the record of a job."""

REFUSALS = (
    Rule(
        Cause.LAUNCH_FAILED,
        r"the entrypoint cannot be run",
        "its program is not there, or cannot be executed",
        ("Check the program and PATH, or give the code with `--workspace`",),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"the working directory .* does not exist",
        "the directory that it is to run in is not there",
        ("Check the image, which is a directory here",),
    ),
    Rule(
        Cause.QUOTA,
        r"open files, but the limit is|too many open files|the limit .* processes",
        "this machine allows no more open files or processes",
        ("ulimit -n; ulimit -u", "Raise it, or run fewer replicas"),
    ),
    Rule(
        Cause.ACCESS_DENIED,
        r"cannot make the log directory .*permission denied",
        "its logs cannot be written",
        ("Choose another folder: `-cfg log_dir=...`",),
    ),
)
"""Of the launch of a local job."""
