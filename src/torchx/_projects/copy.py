"""Copies the entries of a workspace into a directory."""

import os
import posixpath
import stat
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torchx._files import write_all
from torchx._filesystem import filesystem
from torchx._projects.entry import Entry, open_entry, read_small
from torchx._projects.tree import is_local, is_single_file, local_path, scan
from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, TorchXError, UnwritableDirectory, WorkspaceNotFound

logger = get_logger(__name__)

_READ_AT_ONCE_BYTES = 1 << 17
_ENTRIES_PER_TASK = 256
_MOST_THREADS = 8
"""Threads pay off on network file systems, where each call takes a round trip."""


def copy(entries: Sequence[Entry], outdir: str) -> None:
    """Copies entries below a local directory; modes, links and times are kept.

    Existing files stay, unless an entry has the same path: then they are replaced, never written
    through. A file that is the same as its copy is left alone.

    Args:
        entries: sorted by path.
        outdir: made if it is missing.

    Raises:
        UnreadableWorkspace: if a file is gone or cannot be read.
        UnwritableDirectory: if something cannot be written.
        InvalidInput: if a file goes where a folder is.
    """
    try:
        os.makedirs(outdir, exist_ok=True)
        was_empty = not os.listdir(outdir)
        target = _Target(os.path.join(outdir, ""), _umask())
        _copy_in_tasks([e for e in entries if e.kind != "link"], target)
        for entry in entries:
            if entry.kind == "link":
                _make_link(entry, target.path(entry.path))
        folders = [entry for entry in reversed(entries) if entry.kind == "dir"]
        # new folders in an empty directory all have one mode, of the umask, an ACL or a setgid bit
        usual = _mode(target.path(folders[0].path)) if folders and was_empty else None
        for entry in folders:  # modes of read-only folders are set last
            if entry.mode != usual:
                os.chmod(target.path(entry.path), entry.mode)
    except TorchXError:
        raise
    except OSError as err:
        raise _unwritable(outdir, err) from err


def _mode(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


class _Single(NamedTuple):
    """A single project in the form of a workspace."""

    projects: Mapping[str, str]


def merge(projects: Mapping[str, str], outdir: str) -> None:
    """Copies every project of a workspace into its place below a local directory.

    Raises:
        FileNotFoundError: if a project, or the folder for a single file, does not exist.
        InvalidInput: for what cannot be copied.
    """
    own = os.path.realpath(outdir)
    for source, target in projects.items():
        entries = scan(_Single({source: target}), leave_out=own.__eq__)
        if is_single_file(source, entries):
            entries = [_placed(source, target or "", entries[-1], outdir)]
        copy(entries, outdir)


def _placed(source: str, target: str, file: Entry, outdir: str) -> Entry:
    """Returns the entry of a single file at the path where ``cp`` would put it."""
    if not target:
        return file
    there = os.path.join(outdir, file.path)
    if os.path.isdir(there):
        file.path = posixpath.join(file.path, posixpath.basename(source.rstrip("/")))
    elif not os.path.isdir(os.path.dirname(there)):
        msg = (
            f"the file `{source}` goes to `{target}`, and `{os.path.dirname(there)}` is no folder;"
            " make it, or map the folder of the file instead"
        )
        raise WorkspaceNotFound(msg)
    return file


def copy_to_url(entries: Sequence[Entry], url: str) -> None:
    """Copies entries below a directory on any fsspec file system, which keeps content only.

    A link is followed if its target is a file of the workspace, and is left out otherwise.
    """
    if is_local(url):
        copy(entries, local_path(url))
        return
    fs, root = filesystem(url)
    files = {e.path: e for e in entries}
    fs.makedirs(root, exist_ok=True)
    for entry in entries:
        path = posixpath.join(root, entry.path)
        if entry.kind == "dir":
            fs.makedirs(path, exist_ok=True)
            continue
        source: Entry | None = entry
        if entry.kind == "link":
            source = _file_behind(entry, files)
            if source is None:
                logger.warning("the link `%s` is left out: `%s` holds files only", entry.path, url)
                continue
        _copy_to_remote(source, fs, path)


def _copy_to_remote(entry: Entry | None, fs: Any, path: str) -> None:
    import shutil

    assert entry is not None
    fs.makedirs(posixpath.dirname(path), exist_ok=True)
    with open_entry(entry) as source, fs.open(path, "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)


def _file_behind(link: Entry, files: dict[str, Entry]) -> Entry | None:
    found: Entry | None = link
    for _ in range(40):  # the limit of the kernel
        if found is None or found.kind != "link":
            break
        target = posixpath.join(posixpath.dirname(found.path), found.target or "")
        found = files.get(posixpath.normpath(target))
    return found if found is not None and found.kind == "file" else None


def _make_folder(path: str) -> None:
    try:
        os.mkdir(path)
    except FileExistsError:
        if os.path.islink(path):  # files below it must not be written through the link
            os.unlink(path)
            os.mkdir(path)
        elif not os.path.isdir(path):
            raise _in_the_way(path, "a file", "a folder") from None
        elif not os.access(path, os.W_OK | os.X_OK):
            os.chmod(path, 0o700)  # a copy of a read-only folder


def _make_link(entry: Entry, path: str) -> None:
    assert entry.target is not None
    try:
        os.symlink(entry.target, path)
    except FileExistsError:
        if os.path.isdir(path) and not os.path.islink(path):
            raise _in_the_way(path, "a folder", "a link") from None
        os.unlink(path)
        os.symlink(entry.target, path)


class _Target(NamedTuple):
    """A directory that entries are copied to."""

    prefix: str
    """Its path, with a slash at the end."""
    umask: int

    def path(self, entry: str) -> str:
        return self.prefix + entry


def _copy_in_tasks(entries: Sequence[Entry], target: _Target) -> None:
    """Creates folders and files one by one, or in threads if that turns out to pay off."""
    tasks = [entries[i : i + _ENTRIES_PER_TASK] for i in range(0, len(entries), _ENTRIES_PER_TASK)]
    wall, cpu = time.perf_counter(), time.thread_time()
    for done, task in enumerate(tasks, 1):
        _copy_some(task, target)
        threads = _threads(time.perf_counter() - wall, time.thread_time() - cpu)
        if threads > 1:
            _copy_in_threads(tasks[done:], target, threads)
            return


def _copy_in_threads(tasks: Sequence[Sequence[Entry]], target: _Target, threads: int) -> None:
    if not tasks:
        return
    from concurrent.futures import ThreadPoolExecutor

    _make_shared_folders(tasks, target)
    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(_copy_some, task, target) for task in tasks]
        try:
            for future in running:
                future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _make_shared_folders(tasks: Sequence[Sequence[Entry]], target: _Target) -> None:
    """Creates the folders that a task needs and that belong to an earlier task."""
    waiting = {entry.path for task in tasks for entry in task if entry.kind == "dir"}
    for task in tasks:
        there = set()
        for entry in task:
            folder = entry.path.rpartition("/")[0]
            if folder not in there:
                there.add(folder)
                for path in _with_parents(folder):
                    if path in waiting:
                        waiting.remove(path)
                        _make_folder(target.path(path))
            if entry.kind == "dir":
                there.add(entry.path)


def _with_parents(path: str) -> list[str]:
    """Returns a path and its parent folders, outermost first."""
    return [path[:i] for i, letter in enumerate(path) if letter == "/"] + [path]


def _threads(wall_s: float, cpu_s: float) -> int:
    """Returns the number of threads that pays off, given how long copying took without any.

    While one waits for the file system, others can compute. If copying does not wait, threads only
    compete for the interpreter's lock: two take twice as long as one on a tmpfs.
    """
    return min(_MOST_THREADS, max(1, round(wall_s / max(cpu_s, 1e-6))))


def _copy_some(entries: Sequence[Entry], target: _Target) -> None:
    prefix, umask = target
    for entry in entries:
        path = prefix + entry.path
        try:
            if entry.kind == "dir":
                _make_folder(path)
            else:
                _copy_file(entry, path, umask)
        except TorchXError:
            raise
        except OSError as err:
            raise _unwritable(path, err) from err


def _copy_file(entry: Entry, path: str, umask: int) -> None:
    if entry.link_source and _linked(entry.link_source, path):
        return
    try:
        out = os.open(path, _NEW_FILE, entry.mode)
    except FileExistsError:
        if not _clear(entry, path):
            return
        out = os.open(path, _NEW_FILE, entry.mode)
    try:
        status = entry.status
        if status is None or entry.size > _READ_AT_ONCE_BYTES:
            _copy_content(entry, out)
        else:
            write_all(out, read_small(entry))
        if entry.mode & umask:
            os.fchmod(out, entry.mode)
        if status is not None:
            os.utime(out, ns=(status.st_atime_ns, status.st_mtime_ns))
    finally:
        os.close(out)


def _linked(link_source: str, path: str) -> bool:
    """Hard-links the file; False if the file system cannot, or a limit is reached."""
    try:
        os.link(link_source, path)
    except OSError:
        return False
    return True


_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


def _umask() -> int:
    """Returns the umask; all bits if it cannot be read without changing it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            return next(int(line[6:], 8) for line in file if line.startswith("Umask:"))
    except (OSError, StopIteration, ValueError):
        return 0o7777


def _copy_content(entry: Entry, out: int) -> None:
    with open_entry(entry) as source:
        if entry.status is not None:
            if _copied_by_kernel(source.fileno(), out):
                return
            source.seek(os.lseek(out, 0, os.SEEK_CUR))
        while data := source.read(1 << 20):
            write_all(out, data)


def _copied_by_kernel(source: int, out: int) -> bool:
    """Lets the kernel copy the rest of a file; False if it cannot."""
    if not hasattr(os, "copy_file_range"):
        return False
    import errno

    try:
        while os.copy_file_range(source, out, 1 << 30):
            pass
    except OSError as err:
        if err.errno in (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM):
            return False
        raise
    return True


def _clear(entry: Entry, path: str) -> bool:
    """Removes what is at the place of a file; False if it is the same file."""
    there = os.lstat(path)
    status = entry.status
    if status is not None and (there.st_dev, there.st_ino) == (status.st_dev, status.st_ino):
        return False
    if os.path.isdir(path) and not os.path.islink(path):
        raise _in_the_way(path, "a folder", "a file")
    os.unlink(path)
    return True


def _in_the_way(path: str, there: str, wanted: str) -> InvalidInput:
    msg = f"`{path}` is {there}, and the workspace has {wanted} for it; remove it"
    return InvalidInput(msg)


def _unwritable(path: str, err: OSError) -> UnwritableDirectory:
    msg = f"cannot copy the workspace to `{path}`: {err.strerror or err}"
    return UnwritableDirectory(msg)
