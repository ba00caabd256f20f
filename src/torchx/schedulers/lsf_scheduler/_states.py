"""Maps LSF's states, and converts the jobs and notes of an app to a snapshot."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from torchx._startup.dataclass import field, light_dataclass
from torchx.schedulers._core.exits import from_shell
from torchx.schedulers._core.snapshot import AppSnapshot, ReplicaSnapshot, describe_failure
from torchx.specs.api import AppState, Role, is_terminal

from ._job import MARK, AppRecord, Key, Notes, RoleNote, log_path, parse_job_name

STATES: Mapping[str, AppState] = {
    "PEND": AppState.PENDING,
    "PROV": AppState.PENDING,
    "PSUSP": AppState.PENDING,
    "USUSP": AppState.PENDING,
    "SSUSP": AppState.PENDING,
    "RUN": AppState.RUNNING,
    "DONE": AppState.SUCCEEDED,
    "EXIT": AppState.FAILED,
}
"""``UNKWN``, ``ZOMBI`` and unknown values are ``UNKNOWN``."""

_BY_OWNER = frozenset(["TERM_OWNER", "TERM_FORCE_OWNER"])
_KILLED_BY_OWNER = 130
"""Exit code of a job that its owner ended, for versions that report no reason."""
_TERM_WORDS = {
    "TERM_ADMIN": "ended by an administrator",
    "TERM_CPULIMIT": "CPU time limit reached",
    "TERM_CWD_NOTEXIST": "its folder is not there on the host: is `jobdir` shared?",
    "TERM_DEADLINE": "killed after its deadline",
    "TERM_EXTERNAL_SIGNAL": "killed by a signal from outside LSF",
    "TERM_FORCE_ADMIN": "ended by an administrator",
    "TERM_LOAD": "killed because the host had too much load",
    "TERM_MEMLIMIT": "memory limit reached",
    "TERM_OWNER": "ended by its owner",
    "TERM_PREEMPT": "preempted by another job",
    "TERM_PROCESSLIMIT": "limit of processes reached",
    "TERM_RUNLIMIT": "run time limit reached",
    "TERM_SWAP": "limit of swap space reached",
    "TERM_THREADLIMIT": "limit of threads reached",
    "TERM_WINDOW": "the queue's run window closed",
}
_PEND_REASONS = 3


@light_dataclass(frozen=True)
class Row:
    """LSF's record of a job, or of one element of an array."""

    name: str
    job_id: str = ""
    index: int = 0
    """Index of an element, from 1; 0 for a job that is not an array."""
    stat: str = ""
    exit_code: int | None = None
    exit_reason: str = ""
    pend_reason: str = ""
    host: str = ""
    description: str = ""

    @property
    def app_id(self) -> str:
        """The app that it belongs to."""
        found = parse_job_name(self.name)
        return found[0] if found is not None else ""

    @property
    def role(self) -> int | None:
        """Index of its role; ``None`` if it is the job of a gang."""
        found = parse_job_name(self.name)
        return found[1] if found is not None else None

    @property
    def state(self) -> AppState:
        """Its state, as LSF reports it."""
        if self.stat == "EXIT" and self.by_owner:
            return AppState.CANCELLED
        return STATES.get(self.stat, AppState.UNKNOWN)

    @property
    def by_owner(self) -> bool:
        """True if its owner ended it."""
        if self.term:
            return self.term in _BY_OWNER
        return self.stat == "EXIT" and self.exit_code == _KILLED_BY_OWNER

    @property
    def by_limit(self) -> bool:
        """True if LSF itself ended it, and reports why."""
        return self.stat == "EXIT" and bool(self.term) and not self.by_owner

    @property
    def term(self) -> str:
        """LSF's code for how it ended the job; empty if it did not, or does not report it."""
        word = self.exit_reason.strip().partition(":")[0].partition(" ")[0].rstrip(";.")
        return word if word.startswith("TERM_") and word != "TERM_UNKNOWN" else ""

    @property
    def reason(self) -> str:
        """Why it ended; empty if unknown."""
        words = self.exit_reason.strip()
        return _TERM_WORDS.get(self.term) or (words if self.term else "")

    @property
    def folder(self) -> str:
        """The folder of the app; empty if unknown."""
        marked = self.description.startswith(MARK)
        return self.description[len(MARK) :].rstrip() if marked else ""


@light_dataclass(frozen=True)
class AppView:
    """The jobs of an app, and the notes in its folder."""

    app_id: str
    rows: Sequence[Row] = ()
    record: AppRecord | None = None
    notes: Notes = field(default_factory=Notes)
    folder: str = ""

    @cached_property
    def roles(self) -> tuple[RoleNote, ...]:
        """The recorded roles; if the folder is not visible, those found in the jobs."""
        if self.record is not None:
            return self.record.roles
        counts: dict[int, int] = {}
        stems: dict[int, str] = {}
        for row in self.rows:
            index = row.role or 0
            counts[index] = max(counts.get(index, 0), row.index, 1)
            stems[index] = row.name.split(".", 2)[2] if row.role is not None else "gang"
        return tuple(
            RoleNote(stems.get(i, f"role{i}"), stems.get(i, f"role{i}"), counts.get(i, 0))
            for i in range(max(counts, default=-1) + 1)
        )

    @cached_property
    def _by_key(self) -> "dict[tuple[int | None, int], Row]":
        return {(row.role, max(row.index - 1, 0)): row for row in self.rows}

    def row(self, key: Key) -> Row | None:
        """Returns LSF's record of a replica."""
        return self._by_key.get(key) or self._by_key.get((None, 0))

    def max_retries(self, index: int) -> int:
        """Returns the number of retries of a replica; for a gang the least of its roles."""
        if self.record is not None and self.record.gang:
            return min(role.max_retries for role in self.roles)
        return self.roles[index].max_retries

    @property
    def over(self) -> bool:
        """Returns True if all replicas have noted a final end."""
        keys = [(i, k) for i, role in enumerate(self.roles) for k in range(role.replicas)]
        notes = self.notes
        stopped = notes.cancelled or notes.ending
        return bool(keys) and all(
            notes.final(key, self.max_retries(key[0])) and (stopped or key not in notes.killed)
            for key in keys
        )


@light_dataclass(frozen=True)
class LsfSnapshot(AppSnapshot):
    """The snapshot of an app, with its jobs and the folder of its files."""

    view: AppView = field(default_factory=lambda: AppView(""))


def snapshot(view: AppView) -> LsfSnapshot:
    """Builds the snapshot of an app."""
    replicas = tuple(r for i, role in enumerate(view.roles) for r in _replicas(view, i, role))
    attempts = view.notes.attempts.values()
    return LsfSnapshot(
        app_id=view.app_id,
        replicas=replicas,
        roles=tuple(_role(role) for role in view.roles),
        name=view.record.app if view.record is not None else view.app_id.rpartition("-")[0],
        cancelled=view.notes.cancelled,
        message=_message(view, replicas),
        restarts=max(attempts, default=-1),
        metadata={"folder": view.folder} if view.folder else {},
        ends_on_failure=view.record is not None and view.record.end_on_failure,
        view=view,
    )


def _role(note: RoleNote) -> Role:
    return Role(note.name, note.image, num_replicas=note.replicas, min_replicas=note.min_replicas)


def _replicas(view: AppView, index: int, role: RoleNote) -> Iterator[ReplicaSnapshot]:
    notes = view.notes
    for k in range(role.replicas):
        key = index, k
        row = view.row(key)
        state, code, reason = _outcome(view, key, row)
        attempt = notes.attempts.get(key, 0)
        path = log_path(view.folder, role.stem, k, attempt, "err") if view.folder else None
        yield ReplicaSnapshot(
            role=role.name,
            replica=k,
            state=state,
            exit_code=code,
            reason=reason,
            host=notes.hosts.get(key) or (row.host if row is not None else ""),
            attempt=attempt,
            ended_ns=notes.ended_ns.get(key),
            error=notes.errors.get(key),
            log_path=path,
            native_id=f"{row.job_id}[{row.index}]" if row is not None else "",
        )


Outcome = tuple[AppState, int | None, str]
"""Returns state, exit code and reason of a replica."""


def _outcome(view: AppView, key: Key, row: Row | None) -> Outcome:
    notes = view.notes
    raw = notes.codes.get(key)
    if raw is None:
        return _outcome_by_row(view, key, row)
    code = from_shell(raw)
    if raw == 0:
        return AppState.SUCCEEDED, 0, ""
    stopped = notes.cancelled or notes.ending
    live = row is not None and not is_terminal(row.state)
    if key in notes.killed:
        if row is not None and row.by_limit:  # whatever was requested later
            return AppState.FAILED, code, row.reason
        if stopped or (row is not None and row.by_owner):
            return AppState.CANCELLED, code, ""
        # LSF reports the reason when the job has ended
        if live:
            return AppState.RUNNING, None, ""
        return AppState.FAILED, code, row.reason if row is not None else ""
    if notes.final(key, view.max_retries(key[0])):
        reason = row.reason if row is not None and code < 0 and not row.by_owner else ""
        return AppState.FAILED, code, reason
    if live:
        return AppState.PENDING, code, ""  # it will be retried
    return (AppState.CANCELLED if stopped else AppState.FAILED), code, ""


def _outcome_by_row(view: AppView, key: Key, row: Row | None) -> Outcome:
    """Returns the outcome of a replica without a noted end, as LSF reports it."""
    stopped = view.notes.cancelled or view.notes.ending
    if row is None:
        return (AppState.CANCELLED if stopped else AppState.UNKNOWN), None, ""
    if row.stat == "EXIT":
        if row.by_owner or (stopped and not row.by_limit):
            return AppState.CANCELLED, None, ""
        code = from_shell(row.exit_code) if row.exit_code is not None else None
        return AppState.FAILED, code, row.reason or _no_start(view, key)
    if row.stat == "DONE":
        return AppState.SUCCEEDED, 0, ""
    if row.stat == "PEND" and key in view.notes.attempts and key not in view.notes.codes:
        return AppState.RUNNING, None, ""  # the note is newer than LSF's answer
    return row.state, None, row.pend_reason if row.stat == "PEND" else ""


def _no_start(view: AppView, key: Key) -> str:
    if key in view.notes.attempts or not view.folder:
        return ""
    return f"it could not start: can its host read and write `{view.folder}`?"


def _message(view: AppView, replicas: Sequence[ReplicaSnapshot]) -> str:
    """Returns what is being retried, and why replicas wait."""
    found = []
    again = next((r for r in replicas if r.state is AppState.PENDING and r.exit_code), None)
    if again is not None:
        index = [role.name for role in view.roles].index(again.role)
        restart = f"restart {again.attempt + 1} of {view.max_retries(index)}"
        found.append(f"{describe_failure(again)}, it starts again ({restart})")
    waits = [r.reason for r in replicas if r.state is AppState.PENDING and r.reason]
    found += [*dict.fromkeys(waits)][:_PEND_REASONS]
    suspended = {row.stat for row in view.rows if row.stat in ("PSUSP", "USUSP", "SSUSP")}
    words = {"PSUSP": "held", "USUSP": "suspended by a user", "SSUSP": "suspended by LSF"}
    found += [f"{stat} ({words[stat]})" for stat in sorted(suspended)]
    return "; ".join(found)
