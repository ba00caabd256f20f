"""Removes records of ended jobs: on request, and automatically beyond a limit."""

import os
import time

from torchx import settings
from torchx._files import replace_file
from torchx._startup.dataclass import light_dataclass
from torchx._startup.lazy_logger import get_logger

from ._folders import own_logs_dir
from ._record import JobRecord
from ._store import DELETED, Store
from ._supervise import journal

KEPT_JOBS = 1000
"""Default number of latest ended jobs whose records are kept."""
YOUNG_S = 86400.0
"""Time after its end during which a job is always kept."""
_AT_ONCE = 20
"""Most records that one launch removes, to limit the delay."""
_SHORTEST_LINE = 60
"""Bytes of a line of the index: a shorter index has too few lines to check."""

logger = get_logger(__name__)


@light_dataclass(frozen=True)
class Remains:
    """The files of an ended job, or of one whose record is gone."""

    app_id: str
    """Empty for a folder of logs that belongs to no record."""
    ended_ns: int
    paths: tuple[str, ...]
    bytes: int


def find(store: Store, before_ns: int, keep: int = 0) -> list[Remains]:
    """Returns the jobs that ended before a time, except the latest, and logs without a job."""
    found = []
    for number, row in enumerate(store.finished()):
        ended_ns = int(row[4]) if row[4].isdigit() else 0
        if number >= keep and ended_ns < before_ns:
            found.append(_of_job(store, row[0], ended_ns))
    return found + _strays(store, before_ns)


def _of_job(store: Store, app_id: str, ended_ns: int) -> Remains:
    record = store.read(app_id)
    paths = [store.job_dir(app_id)]
    if record is not None and record.own_logs:
        paths.append(record.log_dir)
    return Remains(app_id, ended_ns, tuple(paths), sum(map(_size, paths)))


def _strays(store: Store, before_ns: int) -> list[Remains]:
    """Returns folders of logs in the default location whose job has no record."""
    found = []
    top = own_logs_dir()
    for session in _names(top):
        for app_id in _names(os.path.join(top, session)):
            path = os.path.join(top, session, app_id)
            made_ns = _modified_ns(path)
            if made_ns < before_ns and not os.path.isdir(store.job_dir(app_id)):
                found.append(Remains("", made_ns, (path,), _size(path)))
    return found


def remove(store: Store, remains: Remains) -> bool:
    """Removes the files; returns False if the job is being started or supervised."""
    if not remains.app_id:
        for path in remains.paths:
            _remove_tree(path)
        return True
    record: JobRecord | None = store.read(remains.app_id)
    if record is None:  # another process removed it
        line = f"{remains.app_id}\t\t{DELETED}\t0\t0\t\n"
        journal.append_line(os.path.join(store.home, "index"), line)
        return True
    lock = store.try_lock(remains.app_id)  # otherwise it is supervised
    if lock is None:
        return False
    try:
        if not record.damage and not store.view(record).terminal:
            return False
        store.forget(record)
    finally:
        os.close(lock)
    return True


def keep_to_limit(store: Store) -> int:
    """Removes the oldest jobs beyond the limit; returns their number.

    Keeps running jobs, and those that ended less than a day ago. Called after each launch.
    """
    limit = kept_jobs()
    if limit <= 0 or _index_size(store) < _SHORTEST_LINE * limit:
        return 0
    before_ns = time.time_ns() - int(YOUNG_S * 1e9)
    removed = 0
    for row in reversed([*store.finished()][limit:]):
        if removed >= _AT_ONCE:
            break
        ended_ns = int(row[4]) if row[4].isdigit() else 0
        if ended_ns < before_ns:
            removed += remove(store, Remains(row[0], ended_ns, (), 0))
    if removed:
        logger.debug("removed %d records of jobs beyond the latest %d", removed, limit)
    compact(store)
    return removed


def kept_jobs() -> int:
    """Returns how many ended jobs are kept; 0 for all."""
    given = os.environ.get(settings.ENV_TORCHX_KEEP_JOBS, "")
    if not given:
        return KEPT_JOBS
    if not (given.isascii() and given.isdecimal()):
        logger.warning(
            "`%s=%s` is not a number of jobs; the latest %d are kept",
            settings.ENV_TORCHX_KEEP_JOBS,
            given,
            KEPT_JOBS,
        )
        return KEPT_JOBS
    return int(given)


def compact(store: Store) -> None:
    """Rewrites the index without removed jobs, if these are most of it.

    A line that another process appends at that moment may be lost: jobs that are neither listed nor
    active are listed again.
    """
    path = os.path.join(store.home, "index")
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            lines = f.read().split("\n")
    except FileNotFoundError:
        return
    rows = [row for row in (line.split("\t", 5) for line in lines) if len(row) == 6]
    last = {row[0]: row for row in rows}
    kept = [row for row in rows if last[row[0]] is row and row[2] != DELETED]
    if len(rows) < 200 or len(kept) > len(rows) // 2:
        return
    text = "".join("\t".join(row) + "\n" for row in kept)
    replace_file(path, text.encode("utf-8", "replace"), mode=0o600)
    listed = {row[0] for row in kept}.union(store.active())
    for app_id in {*_names(os.path.join(store.home, "jobs"))} - listed:
        record = store.read(app_id)
        view = store.view(record) if record is not None and not record.damage else None
        if record is not None and view is not None and view.terminal:
            store.finish(record, view.state.name, view.ended_ns)


def _index_size(store: Store) -> int:
    try:
        return os.stat(os.path.join(store.home, "index")).st_size
    except OSError:
        return 0


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _modified_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _size(path: str) -> int:
    """Returns the total size of all files below a folder."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:  # it was removed meanwhile
                continue
    return total


def _remove_tree(path: str) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)
