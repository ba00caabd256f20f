"""``sacct``: its command lines, and what its answers say."""

from collections.abc import Iterator

from torchx.schedulers.api import DAYS_IN_2_WEEKS, ListAppResponse
from torchx.specs.api import AppState

from ._script import parse_mark
from ._squeue import expand_hosts, shown_name
from ._states import Component, NativeJob, aggregate, appstate_from_slurm_state

_SEPARATOR = "\x1f"
"""A comment, which is part of the submit line, may hold the usual ``|``."""
# the name comes last, since it may hold the delimiter
_FIELDS = "JobID,State,ExitCode,WorkDir,NodeList,{submit}JobName"
_LIST_FIELDS = "JobID,State,{submit}JobName"
_SUBMIT = "SubmitLine,"
"""How the job was submitted; Slurm 21.08 or later."""
_TABLE = ["sacct", "--parsable2", f"--delimiter={_SEPARATOR}"]


def describe_command(app_id: str, submit_line: bool = True, cluster: str = "") -> list[str]:
    """A job and its steps."""
    fields = _FIELDS.format(submit=_SUBMIT if submit_line else "")
    clusters = [f"--clusters={cluster}"] if cluster else []
    return [*_TABLE, "-j", app_id, *clusters, f"--format={fields}"]


def list_command(user: str, submit_line: bool = True) -> list[str]:
    """The jobs of a user in the last two weeks."""
    fields = _LIST_FIELDS.format(submit=_SUBMIT if submit_line else "")
    since = f"--starttime=now-{DAYS_IN_2_WEEKS}days"
    return [*_TABLE, "--allocations", f"--user={user}", since, f"--format={fields}"]


def no_submit_line(stderr: str) -> bool:
    """Whether sacct says that it does not know that field."""
    return "SubmitLine" in stderr


def parse_describe(text: str, app_id: str) -> NativeJob | None:
    """The job of that id; ``None`` if no row is about it."""
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
    """Whether it is the job or a component (``7+1``), and no step (``7.0``, ``7+0.batch``)."""
    leader, plus, offset = job_id.partition("+")
    return leader == app_id and (not plus or offset.isdecimal())


def _rows(text: str) -> Iterator[dict[str, str]]:
    """Rows of a ``--parsable2`` table by the names in its header, whatever it is split by."""
    lines = text.split("\n")
    separator = _SEPARATOR if _SEPARATOR in lines[0] else "|"
    header = lines[0].split(separator)
    for line in lines[1:]:
        if line:
            # surplus delimiters belong to the last field
            fields = line.split(separator, len(header) - 1)
            if len(fields) == len(header):
                yield dict(zip(header, fields, strict=True))


def parse_list(text: str) -> list[ListAppResponse]:
    """One row for each job of TorchX, the latest first.

    Without the submit line, what has a name of the form ``<role>-<digits>`` is taken for one.
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
        state = aggregate(appstate_from_slurm_state(row.get("State", "")) for row in rows)
        found.append(ListAppResponse(app_id, state, name=shown_name(app, name)))
    found.sort(key=lambda row: -int(row.app_id))
    return found
