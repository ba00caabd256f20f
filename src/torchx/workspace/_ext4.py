"""Where ext4 puts the folders of a copy, if it has no journal.

Such an ext4 does not take an inode again for minutes after its file was removed. It looks for
another from the first of the block group on, past all of these, once for every new file: 18,000
files that replace a copy just removed take 7 to 15 s rather than half a second. A new folder lies
in the group of its parent, unless that has attribute ``T`` of chattr(1): then it goes where the
fewest folders are, and the files below it meet few inodes of earlier copies.
"""

import os
import sys
from collections import Counter
from collections.abc import Sequence

from torchx._startup.lazy_logger import get_logger
from torchx.workspace._tree import Entry

logger = get_logger(__name__)

_FEW_ENTRIES = 256
"""This many below one folder are made fast enough wherever they lie."""
_ENTRIES_PER_SEARCH = 4
"""To look through the groups of a large disk takes 0.1 ms, as long as three files take."""
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602  # linux/fs.h: FS_IOC_GETFLAGS, FS_IOC_SETFLAGS
_TOP_OF_TREE = 0x20000  # linux/fs.h: FS_TOPDIR_FL


def crowded(entries: Sequence[Entry]) -> set[str]:
    """Folders of a copy from which the folders in them should lie apart.

    Args:
        entries: what is copied; a folder stands before what is in it.

    Returns:
        Their paths in the copy, ``""`` for its root.
    """
    if len(entries) < _FEW_ENTRIES:
        return set()
    below = Counter(entry.path.rpartition("/")[0] for entry in entries)
    folders = [entry.path for entry in entries if entry.kind == "dir"]
    within = Counter(path.rpartition("/")[0] for path in folders)
    for path in reversed(folders):
        below[path.rpartition("/")[0]] += below[path]
    return {
        path
        for path, count in within.items()
        if below[path] >= max(_FEW_ENTRIES, _ENTRIES_PER_SEARCH * count)
    }


def spread(path: str) -> None:
    """Tells ext4 that folders to be made in this one need not lie beside it; others do not know."""
    import fcntl

    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = bytearray(fcntl.ioctl(folder, _GET_FLAGS, bytes(4)))
        flags[2] |= _TOP_OF_TREE >> 16
        fcntl.ioctl(folder, _SET_FLAGS, bytes(flags))
    except OSError as err:
        logger.debug("the folders of `%s` are not spread: %s", path, err.strerror)
    finally:
        os.close(folder)


def has_no_journal(path: str) -> bool:
    """Whether a directory lies on a disk that ext4 keeps no journal for, as far as Linux says.

    It may have another file system then, which does not know ``T``.
    """
    if sys.platform != "linux" or os.uname().machine not in ("x86_64", "aarch64"):
        return False  # the numbers of ioctls differ elsewhere
    device = os.stat(path).st_dev
    try:
        disk = os.readlink(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    except OSError:  # no disk, but memory or a network
        return False
    try:
        journals = os.listdir("/proc/fs/jbd2")  # a folder for each, such as `sda1-8`
    except OSError:
        return True
    return not any(name.startswith(f"{os.path.basename(disk)}-") for name in journals)
