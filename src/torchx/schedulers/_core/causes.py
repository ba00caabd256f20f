"""Explains why an app waits, failed or was lost, in one vocabulary for all schedulers.

The meaning of a backend's messages is data, a table of ``Rule``. If no rule matches, the cause is
``UNKNOWN``: a wrong cause costs more than none.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from torchx._startup.dataclass import light_dataclass, replace
from torchx.specs.api import AppState

from .exits import is_consequence
from .snapshot import AppSnapshot, ReplicaSnapshot

if TYPE_CHECKING:
    import re


class Cause(str, Enum):
    """Codes of causes."""

    NONE = "none"
    """No problem: it runs, or has succeeded."""
    STARTING = "starting"
    """It is starting; nothing blocks it."""
    RESOURCES = "resources"
    """The resources it needs are in use; it will start when they are free."""
    PRIORITY = "priority"
    """Other jobs have priority; it will start when its turn comes."""
    UNSCHEDULABLE = "unschedulable"
    """No machine can currently run it."""
    QUOTA = "quota"
    """A limit of the user, the account or the team is used up."""
    QUEUE_LIMIT = "queue-limit"
    """It asks for more than its queue or partition allows, or that is closed."""
    DEPENDENCY = "dependency"
    """It waits for another job."""
    BEGIN_TIME = "begin-time"
    """It is scheduled to start later."""
    HELD = "held"
    """It is on hold."""
    RETRYING = "retrying"
    """It failed, and is being retried."""
    IMAGE_PULL = "image-pull"
    BAD_OPTION = "bad-option"
    """An option or a name in its request is wrong."""
    ACCESS_DENIED = "access-denied"
    """The credentials are missing, have expired, or do not allow it."""
    MOUNT = "mount"
    OUT_OF_MEMORY = "out-of-memory"
    DISK_FULL = "disk-full"
    TIME_LIMIT = "time-limit"
    PREEMPTED = "preempted"
    NODE_LOST = "node-lost"
    APP_ERROR = "app-error"
    """Its own program ended with an error."""
    KILLED = "killed"
    """A signal ended it, for an unknown reason."""
    CANCELLED = "cancelled"
    LAUNCH_FAILED = "launch-failed"
    """Its program could not be started."""
    BACKEND_AWAY = "backend-away"
    UNKNOWN = "unknown"


@light_dataclass(frozen=True)
class Rule:
    """The meaning of a message of a backend, or of a program.

    ``means`` and ``do`` may name the groups of the pattern, as ``{name}``. ``{app}`` in ``do``
    stands for the name of the app in a command, ``{replica}`` for its role and index.
    """

    cause: Cause
    pattern: str
    """A regular expression; case does not matter."""
    means: str
    do: tuple[str, ...] = ()
    codes: frozenset[int] = frozenset()
    """Exit codes that the rule applies to; empty for any."""


@light_dataclass(frozen=True)
class Evidence:
    """A piece of evidence for the cause."""

    source: str
    """Its source: ``scheduler``, ``exit``, ``exception`` or ``log``."""
    text: str


@light_dataclass(frozen=True)
class Explanation:
    """The reason for an app's state: cause, evidence and advice."""

    state: AppState
    cause: Cause
    summary: str
    """One line in plain words."""
    replica: str = ""
    """Role and index of the replica concerned; empty for the whole app."""
    evidence: tuple[Evidence, ...] = ()
    do: tuple[str, ...] = ()
    """What to do; ``{app}`` stands for the name of the app in a command."""

    @property
    def line(self) -> str:
        """The cause in one line."""
        return f"{self.cause.value}: {self.summary}"


@light_dataclass(frozen=True)
class Rules:
    """The tables of rules of one scheduler, each searched from the top."""

    words: Sequence[Rule]
    """Rules for messages of the backend."""
    output: Sequence[Rule]
    """Rules for exceptions and the last lines of a replica."""


@light_dataclass(frozen=True)
class Trace:
    """Details of a replica's failure, beyond its snapshot."""

    exception: str = ""
    """The exception's own line."""
    place: str = ""
    """The place in the code that raised it."""
    last_lines: Sequence[str] = ()


def failed_replica(snapshot: AppSnapshot) -> ReplicaSnapshot | None:
    """Returns the replica whose failure explains the app's state; ``None`` if there is none."""
    if snapshot.cancelled or snapshot.state in (AppState.SUCCEEDED, AppState.CANCELLED):
        return None
    if snapshot.fatal is not None:
        return snapshot.fatal
    if snapshot.state is not AppState.FAILED or not snapshot.failures:
        return None  # `min_replicas` allows it
    return snapshot.failures[0]


def explain(snapshot: AppSnapshot, rules: Rules, trace: Trace | None = None) -> Explanation:
    """Explains the app's state.

    Args:
        trace: of its ``failed_replica``; ``None`` if nothing else is known.
    """
    failed = failed_replica(snapshot)
    if failed is not None:
        return _of_failure(snapshot, failed, rules, trace or Trace())
    state = snapshot.state
    if snapshot.cancelled or state is AppState.CANCELLED:
        return Explanation(state, Cause.CANCELLED, "its end was asked for")
    waiting = [r for r in snapshot.replicas if r.state is AppState.PENDING]
    if waiting or state is AppState.PENDING:
        return _of_waiting(snapshot, waiting, rules)
    if state is AppState.RUNNING:
        return Explanation(state, Cause.NONE, "it is running")
    if state is AppState.SUCCEEDED:
        return Explanation(state, Cause.NONE, "it succeeded")
    return _of_words(snapshot, rules)


def _of_failure(
    snapshot: AppSnapshot, failed: ReplicaSnapshot, rules: Rules, trace: Trace
) -> Explanation:
    name = f"{failed.role}/{failed.replica}"
    said = [text for text in (failed.reason, snapshot.message) if text]
    evidence = [Evidence("exit", failed.ending)]
    evidence += [Evidence("scheduler", t) for t in said if t not in failed.ending]
    if trace.exception:
        where = f" ({trace.place})" if trace.place else ""
        evidence.append(Evidence("exception", trace.exception + where))
    evidence += [Evidence("log", line) for line in trace.last_lines]
    found = _by_words(snapshot, failed, rules.words)
    if found is None or found.cause is Cause.APP_ERROR:  # what it printed says more
        printed = matched(rules.output, _telling(trace), failed.exit_code)
        exact = None if trace.exception else found
        found = printed or exact or _by_exit(failed, trace)
    return Explanation(
        state=snapshot.state,
        cause=found.cause,
        summary=_summary(name, found.means, len(snapshot.replicas)),
        replica=name,
        evidence=tuple(evidence),
        do=tuple(text.replace("{replica}", name) for text in found.do) or (_READ.format(r=name),),
    )


_BEFORE_IT_RAN = frozenset(
    {
        Cause.STARTING,
        Cause.RESOURCES,
        Cause.PRIORITY,
        Cause.UNSCHEDULABLE,
        Cause.QUOTA,
        Cause.QUEUE_LIMIT,
        Cause.DEPENDENCY,
        Cause.BEGIN_TIME,
        Cause.HELD,
        Cause.RETRYING,
        Cause.IMAGE_PULL,
        Cause.BAD_OPTION,
        Cause.MOUNT,
    }
)
"""Of replicas that have not run yet: what is said of them explains no failure of another one."""


def _by_words(snapshot: AppSnapshot, failed: ReplicaSnapshot, words: Sequence[Rule]) -> Rule | None:
    """By what the backend says of the replica, else of the app."""
    found = matched(words, [failed.reason], failed.exit_code)
    if found is not None or _is_of_another(snapshot.message, failed):
        return found
    if failed.exit_code is not None:
        words = [rule for rule in words if rule.cause not in _BEFORE_IT_RAN]
    return matched(words, [snapshot.message], failed.exit_code)


def _is_of_another(message: str, failed: ReplicaSnapshot) -> bool:
    """Whether the words begin with the name of another replica."""
    import re

    found = re.match(r"([\w.-]+/\d+): ", message)
    return found is not None and found[1] != f"{failed.role}/{failed.replica}"


_HARMLESS = (
    r"(?i)\b(warn(ing)?|info|debug|retry(ing)?|retried|ignor(ed|ing)|recover(ed|ing)"
    r"|skip(ped|ping)|handled|fall(ing)? back)\b"
)
"""In a line that tells of no failure, or of one that was survived."""


def _telling(trace: Trace) -> list[str]:
    """What its output rules are searched in: the exception if it is the failure itself."""
    import re

    if trace.exception and not is_consequence(trace.exception):
        return [trace.exception]
    lines = [line for line in reversed(trace.last_lines) if not re.search(_HARMLESS, line)]
    return [trace.exception, *lines]


_READ = "torchx log {{app}} {r}"


def _summary(name: str, means: str, replicas: int) -> str:
    return f"{name}: {means}" if replicas > 1 else means


_SIGNALS = {
    4: (Cause.APP_ERROR, "it crashed"),
    6: (Cause.APP_ERROR, "it aborted itself"),
    7: (Cause.APP_ERROR, "it crashed"),
    8: (Cause.APP_ERROR, "it crashed"),
    11: (Cause.APP_ERROR, "it crashed"),
    24: (Cause.TIME_LIMIT, "its CPU time was used up"),
    25: (Cause.DISK_FULL, "a file grew beyond its limit"),
}
"""The meaning of signals that a program causes itself."""

_SIGKILL = 9
_KILLED_DO = (
    "If nobody ended it, memory is the usual reason: ask for more, or use less",
    "torchx log {app} {replica}",
)


def _by_exit(failed: ReplicaSnapshot, trace: Trace) -> Rule:
    """Returns the rule for the exit code and the exception alone."""
    code = failed.exit_code
    if trace.exception:
        means = trace.exception
        if is_consequence(trace.exception):
            means += " (the loss of another process, not the first cause)"
        return Rule(Cause.APP_ERROR, "", means)
    if code is None:
        return Rule(Cause.UNKNOWN, "", failed.ending)
    if code < 0:
        cause, means = _SIGNALS.get(-code, (Cause.KILLED, ""))
        words = f"{means}, {failed.ending}" if means else failed.ending
        return Rule(cause, "", words, _KILLED_DO if code == -_SIGKILL else ())
    if code == 0:
        return Rule(Cause.UNKNOWN, "", failed.reason or "it failed, and nobody says why")
    return Rule(Cause.APP_ERROR, "", failed.ending)


def _of_waiting(
    snapshot: AppSnapshot, waiting: Sequence[ReplicaSnapshot], rules: Rules
) -> Explanation:
    again = next((r for r in waiting if r.exit_code), None)
    if again is not None:
        name = f"{again.role}/{again.replica}"
        return Explanation(
            snapshot.state,
            Cause.RETRYING,
            _summary(name, f"{again.ending}, and starts again", len(snapshot.replicas)),
            name,
            _said([snapshot.message]),
            (_READ.format(r=name),),
        )
    reasons = dict.fromkeys(r.reason for r in waiting if r.reason)
    said = [text for text in (*reasons, snapshot.message) if text]
    if not said:
        return Explanation(snapshot.state, Cause.STARTING, "it is being started")
    found = matched(rules.words, said, None)
    how_many = f"{len(waiting)} of {len(snapshot.replicas)} replicas wait: "
    prefix = how_many if 0 < len(waiting) < len(snapshot.replicas) else ""
    if found is None:
        return Explanation(
            snapshot.state, Cause.UNKNOWN, prefix + first_line(said[0]), "", _said(said)
        )
    return Explanation(snapshot.state, found.cause, prefix + found.means, "", _said(said), found.do)


def _of_words(snapshot: AppSnapshot, rules: Rules) -> Explanation:
    """Explains an app that failed or was lost without a known failed replica."""
    said = [snapshot.message] if snapshot.message else []
    said += [*dict.fromkeys(r.reason for r in snapshot.replicas if r.reason)]
    found = matched(rules.words, said, None)
    if found is not None:
        return Explanation(snapshot.state, found.cause, found.means, "", _said(said), found.do)
    words = first_line(said[0]) if said else f"it is {snapshot.state.name}, and nobody says why"
    return Explanation(snapshot.state, Cause.UNKNOWN, words, "", _said(said))


def _said(texts: Iterable[str]) -> tuple[Evidence, ...]:
    return tuple(Evidence("scheduler", text) for text in dict.fromkeys(texts) if text)


def first_line(text: str) -> str:
    """The text up to its first line break."""
    return text.strip().partition("\n")[0]


_QUOTED = r"\"[^\"\n]*\"|`[^`\n]*`|(?<!\w)'[^'\n]*'(?!\w)"


def matched(rules: Sequence[Rule], texts: Iterable[str], code: int | None) -> Rule | None:
    """Returns the first rule that matches one of the texts, with its groups filled in.

    Quoted text is a name that a user chose: a match only within quotes does not count.
    """
    import re

    found = [(text, _spans(re.finditer(_QUOTED, text))) for text in texts if text]
    for rule in rules:
        if rule.codes and code not in rule.codes:
            continue
        for text, quoted in found:
            for match in re.finditer(rule.pattern, text, re.IGNORECASE):
                if not _within(match, quoted):
                    return _filled(rule, match.groupdict())
    return None


def _spans(matches: "Iterable[re.Match[str]]") -> list[tuple[int, int]]:
    return [match.span() for match in matches]


def _within(match: "re.Match[str]", spans: Sequence[tuple[int, int]]) -> bool:
    start, end = match.span()
    return any(first < start and end < last for first, last in spans)


def _filled(rule: Rule, groups: "dict[str, str | None]") -> Rule:
    def fill(text: str) -> str:
        for name, value in groups.items():
            text = text.replace(f"{{{name}}}", value or "?")
        return text

    return replace(rule, means=fill(rule.means), do=tuple(fill(text) for text in rule.do))
