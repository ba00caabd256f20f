"""Command lines of LSF's programs, and parsers of their output."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from torchx.errors import UnexpectedReply

from ._job import MARK, parse_job_name
from ._states import Row

FIELDS = [
    "jobid",
    "jobindex",
    "stat",
    "job_name",
    "exec_host",
    "exit_code",
    "exit_reason",
    "pend_reason",
    "job_description",
]
OLD_FIELDS = [name for name in FIELDS if name not in ("exit_reason", "pend_reason")]
"""Fields that version 9.1 supports."""
DELIMITER = "^"

_SUBMITTED = re.compile(r"Job <(\d+)> is submitted")
_UNSUPPORTED = re.compile(
    r"illegal option|invalid option|unrecognized|invalid (?:field|output)|unknown (?:field|option)|"
    r"field name|usage:|-json",
    re.IGNORECASE,
)
_NOT_FOUND = re.compile(r"no (?:\w+ )*jobs? found|is not found|no matching job", re.IGNORECASE)
_OVER = re.compile(
    # the last is reported for a job that is already being ended
    r"already finished|is being terminated|termination|operation is in progress",
    re.IGNORECASE,
)


# -- bjobs --------------------------------------------------------------------------------------


def bjobs_command(fields: Sequence[str], as_json: bool, name: str | None = None) -> list[str]:
    """Returns the command that lists this user's TorchX jobs, also recently ended ones.

    Args:
        name: only the jobs of that name.
    """
    only = ["-J", name] if name is not None else ["-Jd", f"{MARK}*"]
    if as_json:  # which does not allow `-noheader`
        return ["bjobs", "-a", *only, "-json", "-o", " ".join(fields)]
    columns = f"{' '.join(fields)} delimiter='{DELIMITER}'"
    return ["bjobs", "-a", *only, "-noheader", "-o", columns]


def no_such_output(stderr: str) -> bool:
    """Returns True if this version of bjobs lacks the requested output."""
    return bool(_UNSUPPORTED.search(stderr))


def no_such_job(stderr: str) -> bool:
    """Returns True if there is no such job: unknown, or forgotten after its end."""
    return bool(_NOT_FOUND.search(stderr))


def is_over(stderr: str) -> bool:
    """Returns True if bkill, which prints a line per job, had nothing to do for any."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    return bool(lines) and all(_OVER.search(line) or no_such_job(line) for line in lines)


def parse_json(text: str) -> list[Row]:
    """Parses ``bjobs -json``; skips records of other jobs and of missing ones.

    Raises:
        UnexpectedReply: if it is something else.
    """
    try:
        records = json.loads(text or '{"RECORDS": []}')["RECORDS"]
        rows = [_row({str(k).lower(): str(v) for k, v in record.items()}) for record in records]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnexpectedReply("bjobs -json", text) from None
    return [row for row in rows if row is not None]


def parse_text(text: str, fields: Sequence[str]) -> list[Row]:
    """Parses ``bjobs -noheader -o``; skips lines that are not ours."""
    rows = []
    for line in text.splitlines():
        # the last field may hold the delimiter
        values = line.split(DELIMITER, len(fields) - 1)
        row = _row(dict(zip(fields, (value.strip() for value in values), strict=False)))
        if row is not None:
            rows.append(row)
    return rows


def _row(record: Mapping[str, str]) -> Row | None:
    name = record.get("job_name", "")
    if parse_job_name(name) is None:
        return None
    given = {key: "" if value == "-" else value for key, value in record.items()}
    job_id, bracket, inside = given.get("jobid", "").partition("[")
    index = given.get("jobindex") or (inside.rstrip("]") if bracket else _index_in(name))
    code = given.get("exit_code", "")
    return Row(
        name=name.partition("[")[0],
        job_id=job_id,
        index=int(index) if index.isdecimal() else 0,
        stat=given.get("stat", ""),
        exit_code=int(code) if code.isdecimal() else None,
        exit_reason=given.get("exit_reason", ""),
        pend_reason=given.get("pend_reason", ""),
        host=_first_host(given.get("exec_host", "")),
        description=given.get("job_description", ""),
    )


def _index_in(name: str) -> str:
    return name.partition("[")[2].rstrip("]")


def _first_host(text: str) -> str:
    """Returns the first host.

    >>> _first_host("4*node1:2*node2")
    'node1'
    """
    return text.partition(":")[0].partition(" ")[0].rpartition("*")[2]


def by_app(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Groups jobs by app."""
    apps: dict[str, list[Row]] = {}
    for row in rows:
        apps.setdefault(row.app_id, []).append(row)
    return apps


# -- bsub ---------------------------------------------------------------------------------------


def parse_submitted(stdout: str) -> str:
    """Parses the id of the job from bsub's output.

    >>> parse_submitted("Job <101> is submitted to default queue <normal>.")
    '101'
    """
    found = _SUBMITTED.search(stdout)
    if found is None:
        raise UnexpectedReply("bsub", stdout)
    return found[1]


# -- bhist --------------------------------------------------------------------------------------

_WRAPPED = re.compile(r"\n {21}")
_HEAD = re.compile(r"Job <(?P<id>\d+)(?:\[(?P<index>\d+)\])?>, Job Name <(?P<name>[^>]*)>")
_DESCRIPTION = re.compile(r"Job Description <([^>]*)>")
_HOST = re.compile(r": (?:Dispatched|Started)[^<;]*<([^>]*)>")
_EXIT_CODE = re.compile(r"Exited with exit code (\d+)")
_EXIT_SIGNAL = re.compile(r"Exited by signal (\d+)")
_TERM = re.compile(r"\b(TERM_[A-Z_]+)")


def bhist_command(app_id: str) -> list[str]:
    """Returns the command for the history of one app's jobs, also if they ended long ago."""
    return ["bhist", "-a", "-n", "10", "-l", "-J", f"{app_id}.*"]


def parse_bhist(text: str) -> list[Row]:
    """Parses ``bhist -l``, whose lines are wrapped within words."""
    rows = []
    for block in re.split(r"^-+$", _WRAPPED.sub("", text), flags=re.MULTILINE):
        head = _HEAD.search(block)
        if head is None or parse_job_name(head["name"]) is None:
            continue
        host = _HOST.search(block)
        description = _DESCRIPTION.search(block)
        reason = _TERM.search(block)
        stat, code = _last_event(block)
        index = head["index"] or (_index_in(head["name"]) or "0")
        rows.append(
            Row(
                name=head["name"].partition("[")[0],
                job_id=head["id"],
                index=int(index) if index.isdecimal() else 0,
                stat=stat,
                exit_code=code,
                exit_reason=reason[1] if reason is not None else "",
                host=_first_host(host[1]) if host is not None else "",
                description=description[1] if description is not None else "",
            )
        )
    return rows


def _last_event(block: str) -> tuple[str, int | None]:
    if "Done successfully" in block or "Completed <done>" in block:
        return "DONE", 0
    if (code := _EXIT_CODE.search(block)) is not None:
        return "EXIT", int(code[1])
    if (signal := _EXIT_SIGNAL.search(block)) is not None:
        return "EXIT", 128 + int(signal[1])
    if re.search(r": Exited|Completed <exit>", block):
        return "EXIT", None
    return ("RUN", None) if "Starting (Pid" in block else ("PEND", None)
