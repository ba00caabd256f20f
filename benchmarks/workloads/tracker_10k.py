"""Adds 10,000 entries to the fsspec tracker, reads them, and has 8 processes add at once."""

import multiprocessing
import tempfile
import time

from _shared import report

ENTRIES = 10_000
CHUNK = 1_000
WRITERS = 8
PER_WRITER = 250


def tracker(root: str):
    import fsspec

    from torchx.tracker.backend.fsspec import FsspecTracker

    return FsspecTracker(fsspec.filesystem("file"), root)


def write(root: str, worker: int) -> None:
    """Adds one writer's entries."""
    tracking = tracker(root)
    for i in range(PER_WRITER):
        tracking.add_metadata("shared", **{f"k{worker}_{i}": i})


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        tracking = tracker(root)
        chunks = []
        for first in range(0, ENTRIES, CHUNK):
            started = time.perf_counter()
            for i in range(first, first + CHUNK):
                tracking.add_metadata("run", **{f"k{i}": i})
            chunks.append((time.perf_counter() - started) / CHUNK)
        started = time.perf_counter()
        found = tracking.metadata("run")
        read_s = time.perf_counter() - started
        context = multiprocessing.get_context("fork")
        writers = [context.Process(target=write, args=(root, i)) for i in range(WRITERS)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        shared = tracking.metadata("shared")
        report(
            add_us=1e6 * min(chunks),  # the disk stalls both now and then
            read_us=1e6 * read_s / ENTRIES,
            lost=ENTRIES - len(found),
            lost_of_8=WRITERS * PER_WRITER - len(shared),
        )


if __name__ == "__main__":
    main()
