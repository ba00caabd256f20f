"""Reads replicas one by one, for runners and schedulers that cannot merge logs."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from torchx.cli import _output
from torchx.cli._log_printer import LogPrinter
from torchx.cli._log_query import LogQuery
from torchx.errors import UnsupportedRequest
from torchx.runner import Runner
from torchx.schedulers.api import LogBlock, split_lines


def print_replicas(
    printer: LogPrinter,
    runner: Runner,
    handle: str,
    replicas: Sequence[tuple[str, int]],
    query: LogQuery,
) -> None:
    """Reads each replica in its own thread; the first failure is raised, others are logged."""
    if query.attempt is not None:
        msg = "the scheduler does not keep logs per attempt, leave out --attempt"
        raise UnsupportedRequest(msg)
    exceptions: queue.Queue[Exception] = queue.Queue()

    def work(role: str, replica: int) -> None:
        read = replica_reader(runner, handle, role, replica, query)
        try:
            print_replica(printer, read, query, exceptions)
        except Exception as err:  # noqa: BLE001 - it is on the queue; a thread would print a traceback
            _output.log().debug("reading %s/%d ended", role, replica, exc_info=err)

    threads = [
        threading.Thread(target=work, args=replica, name=f"log-{replica}", daemon=True)
        for replica in replicas
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _raise_first(exceptions)


def _raise_first(exceptions: "queue.Queue[Exception]") -> None:
    errors = []
    while not exceptions.empty():
        errors.append(exceptions.get())
    reported = {str(err) for err in errors[:1]}
    for err in errors[1:]:
        if str(err) not in reported:  # an invalid query fails for every replica in the same way
            reported.add(str(err))
            _output.log().error("%s", err)
    if errors:
        raise errors[0]


def replica_reader(
    runner: Runner, handle: str, role: str, replica: int, query: LogQuery
) -> Callable[[bool], Iterable[LogBlock]]:
    """Returns a function that reads the lines of one replica from the start."""
    times = {"since": query.since, "until": query.until}

    def read(should_tail: bool) -> Iterable[LogBlock]:
        lines = runner.log_lines(
            handle,
            role,
            replica,
            query.regex,
            should_tail=should_tail,
            streams=query.streams,
            **{key: value for key, value in times.items() if value is not None},
        )
        return (LogBlock(role, replica, 0, line) for line in lines)

    return read


def print_replica(
    printer: LogPrinter,
    read: Callable[[bool], Iterable[LogBlock]],
    query: LogQuery,
    exceptions: "queue.Queue[Exception]",
) -> None:
    """Writes the lines of one replica; a failure is put on the queue and raised."""
    try:
        if query.tail_lines is None:
            blocks = read(query.should_tail)
        else:
            follow = read if query.should_tail else None
            blocks = last_lines(read(False), query.tail_lines, follow)
        for block in blocks:
            printer.write(block.role, block.replica, None, block.text)
    except BrokenPipeError:
        printer.abandon()
    except Exception as err:
        exceptions.put(err)
        raise


def last_lines(
    blocks: Iterable[LogBlock],
    count: int,
    follow: Callable[[bool], Iterable[LogBlock]] | None,
) -> Iterator[LogBlock]:
    """Yields the last lines of each replica in order, then lines that are written later."""
    kept: dict[tuple[str, int], deque[tuple[int, LogBlock]]] = {}
    seen: dict[tuple[str, int, int], int] = {}
    number = 0
    for block in blocks:
        last = kept.setdefault((block.role, block.replica), deque(maxlen=count))
        attempt = (block.role, block.replica, block.attempt)
        for line in split_lines(block.text):
            number += 1
            seen[attempt] = seen.get(attempt, 0) + 1
            last.append((number, LogBlock(block.role, block.replica, block.attempt, line)))
    numbered = [entry for last in kept.values() for entry in last]
    yield from (block for _, block in sorted(numbered, key=lambda entry: entry[0]))
    if follow is None:
        return
    for block in follow(True):
        attempt = (block.role, block.replica, block.attempt)
        skip = seen.get(attempt, 0)
        if not skip:
            yield block
            continue
        lines = split_lines(block.text)
        seen[attempt] = max(0, skip - len(lines))
        if len(lines) > skip:
            yield LogBlock(block.role, block.replica, block.attempt, "".join(lines[skip:]))
