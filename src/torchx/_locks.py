"""Locks between processes that work on the same files."""


def wait_for_lock(fd: int) -> bool:
    """Locks an open file or folder until it is closed; false where the file system has no locks."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:  # as network file systems may answer
        return False
    return True
