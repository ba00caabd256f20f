"""Stores the records of local jobs, and reads and lists them.

::

    $TORCHX_HOME/local/            everything below is readable by the user alone
        index                      one line for each finished or deleted job, in that order
        active/<app_id>            an empty file for each job that has not been seen to finish
        jobs/<app_id>/job.json     the request, written once
                      journal      what happened, appended to (see ``_supervise.journal``)
                      lock         locked as long as a supervisor lives
                      sock         where a supervisor listens
                      reserve      space for the last words of a job on a full disk
        logs/<session>/<app_id>/   log files, unless the ``log_dir`` option says otherwise
"""

import errno
import os
from typing import TYPE_CHECKING, Any

from torchx._files import take_lock, try_lock, write_all
from torchx.errors import InvalidInput, JobStartError
from torchx.schedulers._core.exits import one_line_json

from ._folders import local_home
from ._record import JobRecord
from ._states import JobView, failed_keys, parse_journal
from ._supervise import journal

if TYPE_CHECKING:
    from collections.abc import Iterator

RESERVE_BYTES = 16_384
_PART_BYTES = 1 << 16
DELETED = "-"


class Store:
    """The records of one user's local jobs."""

    def __init__(self, home: str | None = None) -> None:
        self.home = home or local_home()

    def job_dir(self, app_id: str) -> str:
        """Returns the folder of that job's record, which may not exist."""
        return os.path.join(self.home, "jobs", app_id)

    def create(self, app_id: str, data: "dict[str, Any]") -> "tuple[str, int]":
        """Records a job before it is started.

        Returns:
            The job's folder and the file descriptor of its lock, which is held.

        Raises:
            JobStartError: if the job cannot be recorded; the record is removed again.
        """
        announced = -1
        try:
            announced = self._announce(app_id)
            return self._create(app_id, data)
        finally:
            if announced >= 0:
                os.close(announced)

    def _announce(self, app_id: str) -> int:
        """Adds a job to the active ones before any of its files are created.

        Returns:
            A descriptor, locked until the record is complete: whoever finds it unlocked and no
            record removes the files.
        """
        path = os.path.join(self.home, "active", app_id)
        try:
            os.makedirs(self.home, 0o700, exist_ok=True)
            self._own_home()
            for name in ("jobs", "active", "logs"):
                os.makedirs(os.path.join(self.home, name), 0o700, exist_ok=True)
            if os.path.lexists(self.job_dir(app_id)):
                raise FileExistsError(errno.EEXIST, "exists", self.job_dir(app_id))
            while True:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                take_lock(fd)
                if os.fstat(fd).st_nlink:
                    return fd
                os.close(fd)  # it was taken for a leftover
        except OSError as err:
            raise self._not_recorded(app_id, err) from None

    def _not_recorded(self, app_id: str, err: OSError) -> JobStartError:
        if isinstance(err, JobStartError):
            return err
        if isinstance(err, FileExistsError):
            msg = f"a local job `{app_id}` exists already (`{err.filename}`), delete it first"
        else:
            msg = f"cannot record the job below `{self.home}`: {err.strerror}; see TORCHX_HOME"
        return JobStartError(msg)

    def _create(self, app_id: str, data: "dict[str, Any]") -> "tuple[str, int]":
        folder = self.job_dir(app_id)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError as err:  # another launch was faster; the existing files belong to it
            raise self._not_recorded(app_id, err) from None
        except OSError as err:
            self.discard(app_id)
            raise self._not_recorded(app_id, err) from None
        import json  # 1 ms, and `list` reads no record of what has ended

        try:
            lock = self._lock(folder)
            try:
                _write(os.path.join(folder, "reserve"), b"\0" * RESERVE_BYTES)
                _write(os.path.join(folder, "job.json"), json.dumps(data).encode())
                _write(os.path.join(folder, "journal"), b"")
            except BaseException:
                os.close(lock)
                raise
        except BaseException as err:
            self.discard(app_id)
            if isinstance(err, OSError):
                msg = f"cannot record the job in `{folder}`: {err.strerror}; see TORCHX_HOME"
                raise JobStartError(msg) from None
            raise
        return folder, lock

    def _own_home(self) -> None:
        """Refuses a folder that belongs to another user, and makes ours private."""
        found = os.stat(self.home)
        if found.st_uid != os.geteuid():
            msg = (
                f"`{self.home}` belongs to another user (id {found.st_uid}), who could read and "
                "change your jobs; set TORCHX_HOME to a folder of your own"
            )
            raise JobStartError(msg)
        if found.st_mode & 0o077:
            os.chmod(self.home, 0o700)

    def _lock(self, folder: str) -> int:
        fd = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            take_lock(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def try_lock(self, app_id: str) -> int | None:
        """Locks a job that has no supervisor; ``None`` if it has one."""
        try:
            fd = os.open(os.path.join(self.job_dir(app_id), "lock"), os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            locked = try_lock(fd)
        except BaseException:
            os.close(fd)
            raise
        if not locked:
            os.close(fd)
            return None
        return fd

    def read(self, app_id: str) -> JobRecord | None:
        """Returns the record of a job, which may be damaged; ``None`` if there is none."""
        if not app_id or "/" in app_id or "\0" in app_id or app_id in (".", ".."):
            return None
        folder = self.job_dir(app_id)
        try:
            return JobRecord(app_id, folder, _parsed(_content(f"{folder}/job.json")))
        except (FileNotFoundError, NotADirectoryError):
            lock = self.try_lock(app_id)
            if lock is None:
                return None  # there is no such job, or it is being recorded just now
            os.close(lock)
            return JobRecord(app_id, folder, None)
        except PermissionError as err:
            raise self._unreadable(err) from None
        except OSError as err:
            if err.errno == errno.ENAMETOOLONG:
                return None
            raise

    def view(self, record: JobRecord) -> JobView:
        """Returns the current state of a job from its journal."""
        try:
            return parse_journal(_content(f"{record.path}/journal"))
        except FileNotFoundError:
            return JobView()

    def errors(self, record: JobRecord, view: JobView) -> "dict[tuple[int, int], str]":
        """Returns the contents of failed replicas' error files, by role index and replica."""
        found = {}
        for key in failed_keys(view):
            path = record.error_file(*key, view.replicas[key].attempt)
            if path is None:
                continue
            try:
                with open(path, encoding="utf-8", errors="replace") as f:
                    found[key] = one_line_json(f.read())
            except OSError:
                continue
        return found

    def active(self) -> "list[str]":
        """Returns ids of the jobs not known to have finished."""
        try:
            return os.listdir(os.path.join(self.home, "active"))
        except FileNotFoundError:
            return []
        except (NotADirectoryError, PermissionError) as err:
            raise self._unreadable(err) from None

    def _unreadable(self, err: OSError) -> InvalidInput:
        msg = (
            f"cannot read the records of local jobs below `{self.home}`: {err.strerror}; "
            "set TORCHX_HOME to a folder of your own"
        )
        return InvalidInput(msg)

    def clear_leftover(self, app_id: str) -> None:
        """Removes the files of a launcher that was killed before it had recorded its job."""
        try:
            fd = os.open(os.path.join(self.home, "active", app_id), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return  # another process has done it
        try:
            if try_lock(fd) and self.read(app_id) is None:
                self.discard(app_id)
        finally:
            os.close(fd)

    def ids(self) -> "list[str]":
        """Returns ids of all recorded jobs, in any order."""
        try:
            return os.listdir(os.path.join(self.home, "jobs"))
        except FileNotFoundError:
            return []

    def finished_ids(self) -> "Iterator[str]":
        """Yields ids of the jobs in the index, latest first; some may be repeated."""
        deleted = set()
        for line in reversed(self._index() or ()):
            row = line.split("\t", 3)
            if len(row) < 4:
                continue
            if row[2] == DELETED:
                deleted.add(row[0])
            elif row[0] not in deleted:
                yield row[0]

    def _index(self) -> "list[str] | None":
        try:
            with open(os.path.join(self.home, "index"), "rb") as f:
                return f.read().decode(errors="replace").split("\n")
        except FileNotFoundError:
            return None

    def finished(self) -> "Iterator[list[str]]":
        """Yields the fields of finished jobs that were not deleted, latest first."""
        lines = self._index()
        if lines is None:
            lines = self._rebuild_index()
        seen = set()
        for line in reversed(lines):
            row = line.split("\t", 5)
            # with fewer fields somebody else wrote it, or it was cut off
            if len(row) == 6 and row[0] not in seen:
                seen.add(row[0])
                if row[2] != DELETED:
                    yield row

    def _rebuild_index(self) -> "list[str]":
        """Rebuilds a removed index by reading the jobs one by one."""
        try:
            ids = os.listdir(os.path.join(self.home, "jobs"))
        except FileNotFoundError:
            return []
        rebuilt = False
        for app_id in {*ids}.difference(self.active()):
            record = self.read(app_id)
            view = self.view(record) if record else None
            if record and view and view.terminal:
                self.finish(record, view.state.name, view.ended_ns)
                rebuilt = True
        return (self._index() or []) if rebuilt else []

    def finish(self, record: JobRecord, state: str, ended_ns: int) -> None:
        """Adds a job to the index of finished ones."""
        fields = (record.app_id, record.session, record.name)
        journal.finish(self.home, fields, state, (record.created_ns, ended_ns))

    def forget(self, record: JobRecord) -> None:
        """Removes the record of a job, and its logs if they are in the default folder."""
        line = f"{record.app_id}\t\t{DELETED}\t0\t0\t\n"
        journal.append_line(os.path.join(self.home, "index"), line)
        if record.own_logs:
            _remove_tree(record.log_dir)
        self.discard(record.app_id)

    def discard(self, app_id: str) -> None:
        """Removes what exists of a job's record."""
        _remove_tree(self.job_dir(app_id))
        try:
            os.unlink(os.path.join(self.home, "active", app_id))
        except FileNotFoundError:
            pass


def _content(path: str) -> bytes:
    """Returns the content of a small file. `open` takes three times as long, and `wait` reads two
    files after each change.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while part := os.read(fd, _PART_BYTES):
            data += part
        return data
    finally:
        os.close(fd)


def _parsed(data: bytes) -> object:
    import json  # see `_create`

    try:
        return json.loads(data.decode("utf-8", "surrogatepass"))
    except ValueError:
        return None


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def _remove_tree(path: str) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)
