"""``squeue``: its command lines, and what its answers say."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from torchx.errors import UnexpectedReply
from torchx.schedulers.api import ListAppResponse
from torchx.specs.api import AppState, Resource

from ._script import parse_mark
from ._states import Component, NativeJob, appstate_from_slurm_state, native_state

_SEPARATOR = "\x1f"
_FIELDS = ["%i", "%T", "%r", "%u", "%N", "%Z", "%o", "%j"]


def json_command(user: str, cluster: str = "") -> list[str]:
    """All jobs of a user, those that ended a short time ago too, as JSON (Slurm 21.08 or later).

    Versions before 23.02 ignore the filters and tell of everyone's jobs.
    """
    return ["squeue", "--json", "--states=all", f"--user={user}", *_clusters(cluster)]


def text_command(user: str, cluster: str = "") -> list[str]:
    """The same as text, for versions and installations without JSON."""
    form = _SEPARATOR.join(_FIELDS)
    head = ["squeue", "--noheader", "--states=all", f"--user={user}"]
    return [*head, *_clusters(cluster), f"--format={form}"]


def _clusters(cluster: str) -> list[str]:
    return [f"--clusters={cluster}"] if cluster else []


def no_json(stderr: str) -> bool:
    """Whether squeue says that it cannot write JSON."""
    text = stderr.lower()
    return "unrecognized option" in text or "serializer" in text or "data_parser" in text


def parse_json(text: str) -> dict[str, NativeJob]:
    """Jobs by the id of their leader.

    Raises:
        UnexpectedReply: if it is not what squeue of a known version writes.
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
    """Id of the first component of the job that a record belongs to."""
    return str(number(job.get("het_job_id")) or number(job.get("job_id")))


def native_job(app_id: str, jobs: "list[dict[str, Any]]") -> NativeJob:
    """The job that the records of its components describe."""
    jobs = sorted(jobs, key=lambda job: number(job.get("het_job_offset")))
    return NativeJob(
        app_id=app_id,
        components=tuple(_component(job) for job in jobs),
        work_dir=str(jobs[0].get("current_working_directory") or ""),
        command=str(jobs[0].get("command") or ""),
        restarts=number(jobs[0].get("restart_cnt")) if "restart_cnt" in jobs[0] else -1,
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
    """Hosts, and what is allocated on the last of them, in the shapes of 21.08 to 24.11."""
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
    """A number, plain (up to 22.05) or as ``{"set": true, "number": 7}``; 0 if it is not set.

    >>> number(7), number({"set": True, "infinite": False, "number": 7}), number({"set": False})
    (7, 7, 0)
    """
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else 0
    return value if isinstance(value, int) else 0


def expand_hosts(text: str) -> list[str]:
    """The hosts of an expression such as ``n[1-3,7],login``.

    >>> expand_hosts("n[08-10],m1")
    ['n08', 'n09', 'n10', 'm1']
    """
    import itertools
    import re

    hosts = []
    for word in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        parts = []
        for piece in re.split(r"(\[[^\]]*\])", word):
            parts.append(_expand_ranges(piece[1:-1]) if piece.startswith("[") else [piece])
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


def parse_text(text: str) -> dict[str, NativeJob]:
    """Jobs by the id of their leader, from what ``text_command`` prints."""
    groups: dict[str, list[list[str]]] = {}
    for line in text.split("\n"):
        fields = line.split(_SEPARATOR, len(_FIELDS) - 1)
        if len(fields) == len(_FIELDS):
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


def rows(jobs: Iterable[NativeJob], user: str) -> list[ListAppResponse]:
    """One row for each job of TorchX that belongs to the user; of anyone for an empty name."""
    found = []
    for job in jobs:
        mark = parse_mark(job.command)
        if mark is None or not job.components:
            continue
        if user and job.components[0].user not in ("", user):
            continue
        name = shown_name(mark[1], job.components[0].name)
        found.append(ListAppResponse(job.app_id, job.state, name=name))
    return found


def shown_name(app: str, component: str) -> str:
    """The name of the app; with the replica, as other versions tell it, if the role has the same.

    >>> shown_name("train", "worker-0"), shown_name("train", "train-0")
    ('train', 'train-0')
    """
    return component if not app or component.rpartition("-")[0] == app else app
