"""Command lines of ``squeue``, ``sacct`` and ``sinfo``, and parsers of their output."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torchx.errors import UnexpectedReply
from torchx.schedulers.api import DAYS_IN_2_WEEKS
from torchx.specs.api import AppState, Resource

from ._job import parse_mark
from ._states import (
    Component,
    NativeJob,
    SlurmSnapshot,
    appstate_from_slurm_state,
    job_state,
    native_state,
)

_SEPARATOR = "\x1f"
"""A comment, which is part of the submit line, may hold the usual ``|``."""

# -- squeue -------------------------------------------------------------------------------------

_QUEUE_FIELDS = ["%i", "%T", "%r", "%u", "%N", "%Z", "%o", "%j"]


def squeue_json_command(user: str, cluster: str = "") -> list[str]:
    """Returns the command for all jobs of a user, also recently ended ones, as JSON (Slurm 21.08 or
    later).

    Versions before 23.02 ignore the filters and list everyone's jobs.
    """
    return ["squeue", "--json", "--states=all", f"--user={user}", *_clusters(cluster)]


def squeue_text_command(user: str, cluster: str = "") -> list[str]:
    """Returns the command for all jobs of a user as text, for installations without JSON."""
    form = _SEPARATOR.join(_QUEUE_FIELDS)
    head = ["squeue", "--noheader", "--states=all", f"--user={user}"]
    return [*head, *_clusters(cluster), f"--format={form}"]


def _clusters(cluster: str) -> list[str]:
    return [f"--clusters={cluster}"] if cluster else []


def no_json(stderr: str) -> bool:
    """Returns True if squeue reports that it cannot write JSON."""
    text = stderr.lower()
    return "unrecognized option" in text or "serializer" in text or "data_parser" in text


def squeue_errors(text: str) -> str:
    """Returns the errors that ``squeue --json`` reports in place of jobs; empty for none."""
    try:
        reply = json.loads(text)
        if reply.get("jobs"):
            return ""
        errors = [error.get("description") or error.get("error") for error in reply["errors"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return "; ".join(str(error) for error in errors)


def parse_squeue_json(text: str) -> dict[str, NativeJob]:
    """Parses jobs, by the id of their leader.

    Raises:
        UnexpectedReply: if it is not the output of a known version of squeue.
    """
    try:
        jobs = json.loads(text)["jobs"]
        records = [job for job in jobs if isinstance(job, dict)]
    except (ValueError, KeyError, TypeError):
        raise UnexpectedReply("squeue --json", text) from None
    groups: dict[str, list[dict[str, Any]]] = {}
    for job in records:
        groups.setdefault(leader_id(job), []).append(job)
    return {app_id: native_job(app_id, group) for app_id, group in groups.items()}


def leader_id(job: Mapping[str, Any]) -> str:
    """Returns the id of the first component of a record's job."""
    return str(number(job.get("het_job_id")) or number(job.get("job_id")))


def native_job(app_id: str, jobs: "list[dict[str, Any]]") -> NativeJob:
    """Builds a job from the records of its components."""
    jobs = sorted(jobs, key=lambda job: number(job.get("het_job_offset")))
    return NativeJob(
        app_id=app_id,
        components=tuple(_component(job) for job in jobs),
        work_dir=str(jobs[0].get("current_working_directory") or ""),
        command=str(jobs[0].get("command") or ""),
        restarts=number(jobs[0].get("restart_cnt")) if "restart_cnt" in jobs[0] else -1,
        submitted_s=number(jobs[0].get("submit_time")),
    )


def _component(job: Mapping[str, Any]) -> Component:
    native = native_state(job)
    state = appstate_from_slurm_state(native)
    hosts, resource = _allocation(job, pending=state is AppState.PENDING)
    return Component(
        name=str(job.get("name") or ""),
        state=state,
        native=native,
        reason=str(job.get("state_reason") or ""),
        hosts=hosts,
        resource=resource,
        user=str(job.get("user_name") or ""),
    )


def _allocation(job: Mapping[str, Any], pending: bool) -> "tuple[tuple[str, ...], Resource | None]":
    """Parses hosts, and the allocation on the last one, in the formats of 21.08 to 24.11."""
    given = job.get("job_resources")
    resources: Mapping[str, Any] = given if isinstance(given, dict) else {}
    nodes = resources.get("nodes")
    nodes_text = nodes if isinstance(nodes, str) else ""
    if isinstance(nodes, dict):
        nodes_text = str(nodes.get("list") or "")
    if pending:
        hosts = resources.get("scheduled_nodes") or nodes_text
        if not resources:
            hosts = job.get("nodes") or job.get("scheduled_nodes")
        return (tuple(expand_hosts(str(hosts))) if hosts else (), None)
    found = _newest(nodes) or _older(resources.get("allocated_nodes"))
    if found:
        return tuple(name for name, _, _ in found), Resource(found[-1][1], -1, found[-1][2])
    hosts = nodes_text or job.get("nodes")
    return (tuple(expand_hosts(str(hosts))) if hosts else (), None)


def _newest(nodes: object) -> "list[tuple[str, int, int]]":
    allocation = nodes.get("allocation") if isinstance(nodes, dict) else None
    return [
        (
            str(node.get("name")),
            number((node.get("cpus") or {}).get("used")),
            number((node.get("memory") or {}).get("allocated")) // 1024,
        )
        for node in allocation or ()
        if isinstance(node, dict)
    ]


def _older(nodes: object) -> "list[tuple[str, int, int]]":
    each = nodes.values() if isinstance(nodes, dict) else nodes
    return [
        (
            str(node.get("nodename")),
            number(node.get("cpus_used")),
            number(node.get("memory_allocated")),
        )
        for node in (each if isinstance(each, Iterable) else ())
        if isinstance(node, dict) and node.get("nodename")
    ]


def number(value: object) -> int:
    """Parses a number, plain (up to 22.05) or as ``{"set": true, "number": 7}``; 0 if unset.

    >>> number(7), number({"set": True, "infinite": False, "number": 7}), number({"set": False})
    (7, 7, 0)
    """
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else 0
    return value if isinstance(value, int) else 0


def expand_hosts(text: str) -> list[str]:
    """Expands a host expression such as ``n[1-3,7],login``.

    >>> expand_hosts("n[08-10],m1")
    ['n08', 'n09', 'n10', 'm1']
    """
    hosts = []
    for word in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        parts = [
            _expand_ranges(piece[1:-1]) if piece.startswith("[") else [piece]
            for piece in re.split(r"(\[[^\]]*\])", word)
        ]
        hosts += ["".join(choice) for choice in itertools.product(*parts)]
    return hosts


def _expand_ranges(text: str) -> list[str]:
    found = []
    for item in text.split(","):
        first, dash, last = item.partition("-")
        if dash and first.isdecimal() and last.isdecimal():
            width = len(first)
            found += [f"{i:0{width}d}" for i in range(int(first), int(last) + 1)]
        else:
            found.append(item)
    return found


def parse_squeue_text(text: str) -> dict[str, NativeJob]:
    """Parses the output of ``squeue_text_command``: jobs by the id of their leader."""
    groups: dict[str, list[list[str]]] = {}
    for line in text.split("\n"):
        fields = line.split(_SEPARATOR, len(_QUEUE_FIELDS) - 1)
        if len(fields) == len(_QUEUE_FIELDS):
            groups.setdefault(fields[0].partition("+")[0], []).append(fields)
    jobs = {}
    for app_id, rows in groups.items():
        rows.sort(key=lambda row: int("0" + row[0].partition("+")[2]))
        components = []
        for _, native, reason, user, nodes, _, _, name in rows:
            state = appstate_from_slurm_state(native)
            hosts = tuple(expand_hosts(nodes)) if nodes else ()
            components.append(Component(name, state, native, reason, hosts, None, user))
        jobs[app_id] = NativeJob(app_id, tuple(components), rows[0][5], rows[0][6])
    return jobs


def queued_apps(jobs: Iterable[NativeJob], user: str) -> list[SlurmSnapshot]:
    """Returns the TorchX jobs of the user, of all users for an empty name."""
    found = []
    for job in jobs:
        mark = parse_mark(job.command)
        if mark is None or not job.components:
            continue
        if user and job.components[0].user not in ("", user):
            continue
        name = shown_name(mark[1], job.components[0].name)
        known = SlurmSnapshot(
            job.app_id, native_state=job.state, name=name, created_ns=job.submitted_ns
        )
        found.append(known)
    return found


def shown_name(app: str, component: str) -> str:
    """Returns the name of the app; with the replica, as in other versions, if the role has the
    same.

    >>> shown_name("train", "worker-0"), shown_name("train", "train-0")
    ('train', 'train-0')
    """
    return component if not app or component.rpartition("-")[0] == app else app


# -- sacct --------------------------------------------------------------------------------------

# the name comes last, since it may hold the delimiter
_JOB_FIELDS = "JobID,State,ExitCode,WorkDir,NodeList,{submit}JobName"
_LIST_FIELDS = "JobID,State,{submit}JobName"
_SUBMIT = "SubmitLine,"
"""Field with the submit command; Slurm 21.08 or later."""
_TABLE = ["sacct", "--parsable2", f"--delimiter={_SEPARATOR}"]


def sacct_command(app_id: str, submit_line: bool = True, cluster: str = "") -> list[str]:
    """Returns the command for a job and its steps."""
    fields = _JOB_FIELDS.format(submit=_SUBMIT if submit_line else "")
    clusters = [f"--clusters={cluster}"] if cluster else []
    return [*_TABLE, "-j", app_id, *clusters, f"--format={fields}"]


def sacct_list_command(user: str, submit_line: bool = True) -> list[str]:
    """Returns the command for the jobs of a user in the last two weeks."""
    fields = _LIST_FIELDS.format(submit=_SUBMIT if submit_line else "")
    since = f"--starttime=now-{DAYS_IN_2_WEEKS}days"
    return [*_TABLE, "--allocations", f"--user={user}", since, f"--format={fields}"]


def no_submit_line(stderr: str) -> bool:
    """Returns True if sacct reports that it does not know that field."""
    return "SubmitLine" in stderr


def parse_sacct(text: str, app_id: str) -> NativeJob | None:
    """Parses the job of that id; ``None`` if it has no row."""
    components = []
    work_dir = command = ""
    rows = [row for row in _rows(text) if _is_allocation(row.get("JobID", ""), app_id)]
    rows.sort(key=lambda row: int("0" + row["JobID"].partition("+")[2]))
    for row in rows:
        full = row.get("State", "")
        nodes = row.get("NodeList", "")
        hosts = () if nodes in ("", "None assigned") else tuple(expand_hosts(nodes))
        name, state = row.get("JobName", ""), appstate_from_slurm_state(full)
        components.append(Component(name, state, full, hosts=hosts))
        work_dir = work_dir or row.get("WorkDir", "")
        command = command or row.get("SubmitLine", "")
    return NativeJob(app_id, tuple(components), work_dir, command) if components else None


def _is_allocation(job_id: str, app_id: str) -> bool:
    """Returns True for the job or a component (``7+1``), not a step (``7.0``, ``7+0.batch``)."""
    leader, plus, offset = job_id.partition("+")
    return leader == app_id and (not plus or offset.isdecimal())


def _rows(text: str) -> Iterator[dict[str, str]]:
    """Yields rows of a ``--parsable2`` table by column name, for any delimiter."""
    lines = text.split("\n")
    separator = _SEPARATOR if _SEPARATOR in lines[0] else "|"
    header = lines[0].split(separator)
    for line in lines[1:]:
        if line:
            # surplus delimiters belong to the last field
            fields = line.split(separator, len(header) - 1)
            if len(fields) == len(header):
                yield dict(zip(header, fields, strict=True))


def accounted_apps(text: str) -> list[SlurmSnapshot]:
    """Parses the jobs of TorchX, latest first.

    Without the submit line, jobs with a name of the form ``<role>-<digits>`` are taken for ours.
    """
    groups: dict[str, list[dict[str, str]]] = {}
    for row in _rows(text):
        groups.setdefault(row.get("JobID", "").partition("+")[0], []).append(row)
    found = []
    for app_id, rows in groups.items():
        if not app_id.isdecimal():
            continue
        name = rows[0].get("JobName", "")
        app = ""
        if "SubmitLine" in rows[0]:
            mark = parse_mark(rows[0]["SubmitLine"])
            if mark is None:
                continue
            app = mark[1]
        elif Component(name, AppState.UNKNOWN).role is None:
            continue
        state = job_state(appstate_from_slurm_state(row.get("State", "")) for row in rows)
        found.append(SlurmSnapshot(app_id, native_state=state, name=shown_name(app, name)))
    found.sort(key=lambda app: -int(app.app_id))
    return found


# -- sinfo --------------------------------------------------------------------------------------


def parse_version(text: str) -> tuple[int, int] | None:
    """Parses ``slurm 24.11.0 rev1``; ``None`` if it is something else.

    >>> parse_version("slurm-wlm 22.05.8")
    (22, 5)
    """
    words = text.split()
    parts = words[1].split(".") if len(words) > 1 else []
    if len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return None
    return int(parts[0]), int(parts[1])


def parse_memory(text: str, partition: str | None) -> int | None:
    """Parses the memory from the output of ``sinfo --format %P,%m``; ``*`` marks the default.

    >>> parse_memory("PARTITION,MEMORY\\ndebug*,2048+\\nbig,9M\\n", None)
    2048
    """
    for line in text.split("\n")[1:]:
        name, comma, memory = line.strip().rpartition(",")
        default = name.endswith("*")
        wanted = default if partition is None else name.rstrip("*") == partition
        digits = memory.rstrip("+M")
        if comma and wanted and digits.isdecimal():
            return int(digits)
    return None
