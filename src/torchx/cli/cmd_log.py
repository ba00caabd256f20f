"""``torchx log``: the output of an app's replicas."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from torchx._startup.lazy_logger import get_logger
from torchx._words import did_you_mean
from torchx.cli import _arguments, _output
from torchx.cli._explained import replicas_of
from torchx.cli._log_printer import LogPrinter
from torchx.cli._log_printer import prefix_line as _prefix_line
from torchx.cli._log_query import (
    ID_FORMAT,
    LogQuery,
    LogTarget,
    parse_count,
    parse_identifier,
    parse_regex,
    parse_time,
)
from torchx.cli._log_start import StartWait
from torchx.cli._look import is_terminal
from torchx.cli._reader import while_read
from torchx.cli.cmd_base import SubCommand, missing_app
from torchx.errors import BackendUnavailable, LogsNotFound, UnresolvedApp, UnsupportedRequest
from torchx.runner import Runner, get_runner
from torchx.schedulers._core.unfinished import unfinished_lines
from torchx.schedulers.api import LogBlock, LogReport, Stream, one_look
from torchx.specs import AppDef, AppStatus
from torchx.specs.api import is_started
from torchx.util.colors import ENDC, GREEN

if TYPE_CHECKING:
    import queue

logger = get_logger(__name__)  # clients replace it

__all__ = [
    "ENDC",
    "GREEN",
    "ID_FORMAT",
    "CmdLog",
    "_prefix_line",
    "find_role_replicas",
    "get_logs",
    "get_runner",
    "print_log_lines",
    "validate",
]

EPILOG = f"""\
IDENTIFIER is {ID_FORMAT}, or a handle followed by ROLE[/IDS].
Instead of a handle, an app id or an unambiguous prefix of it is enough.

examples:
  torchx log -f                                   follow the app that was launched last
  torchx log train-x1 trainer/0 -n 20             the last lines of one replica
  torchx log HANDLE/trainer/0,3                   two replicas of a role
  torchx log HANDLE --since 10m --regex Error
  torchx log --verify HANDLE                      is every line there?"""


_Replicas = Sequence[tuple[str, int]]
_Opened = tuple[_Replicas, Iterator[LogBlock] | None]


class CmdLog(SubCommand):
    """Prints log lines, each prefixed with role and replica."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = "Print the logs of an app, its roles or its replicas."
        subparser.epilog = EPILOG
        add = subparser.add_argument
        add(
            "identifier",
            type=str,
            nargs="?",
            metavar="IDENTIFIER",
            help="the app, see below (default: the app that was launched last)",
        )
        add("role", type=str, nargs="?", metavar="ROLE[/IDS]", help="if not in IDENTIFIER")
        add("--regex", type=parse_regex, help="only lines that match this")
        add("-f", "-t", "--tail", action="store_true", help="follow the logs until the app ends")
        add(
            "--streams",
            type=str,
            choices=[stream.value for stream in Stream],
            help="stdout, stderr or combined (default: the scheduler's choice)",
        )
        time_help = "an age (10m, 2h) or a date and time (2030-01-31T12:00:00Z)"
        add("--since", type=parse_time, metavar="TIME", help=f"only later lines: {time_help}")
        add("--until", type=parse_time, metavar="TIME", help="only earlier lines")
        add(
            "-n",
            "--tail-lines",
            type=parse_count,
            metavar="N",
            help="only the last N of each replica",
        )
        add("--attempt", type=parse_count, metavar="N", help="only attempt N, 0 is the first")
        add(
            "--verify",
            action="store_true",
            help="report missing lines, exit 1 if there are any",
        )
        _arguments.add_json(subparser)

    def run(self, args: argparse.Namespace) -> None:
        target = _target(_resolved(args.identifier), args.role)
        if args.verify:
            with get_runner() as runner:
                _verify(runner, target, args.attempt, args.json)
            return
        query = LogQuery(
            regex=args.regex,
            should_tail=args.tail,
            streams=Stream(args.streams) if args.streams else None,
            since=args.since,
            until=args.until,
            tail_lines=args.tail_lines,
            attempt=args.attempt,
        )
        printer = LogPrinter(_output.stdout(), args.json)
        with get_runner() as runner, while_read():
            found = _print_logs(printer, runner, target, query)
        if not found:
            message, hint = missing_app(target.scheduler, target.app_id)
            _output.error_json("UnknownAppException", message, hint)
            raise SystemExit(1)


def _resolved(identifier: str | None) -> str:
    from torchx.cli._handles import resolve_identifier

    try:
        return resolve_identifier(identifier)
    except UnresolvedApp as err:
        _output.fail(f"{err}", kind=type(err).__name__, hint=f"IDENTIFIER is {ID_FORMAT}")


def validate(job_identifier: str) -> None:
    """Ends the process if the text is not of the form `ID_FORMAT`."""
    if parse_identifier(job_identifier) is None:
        msg = f"`{job_identifier}` is not of the form {ID_FORMAT}"
        _output.fail(msg, kind="MalformedLogIdentifier", code=2)


def get_logs(
    file: TextIO,
    identifier: str,
    regex: str | None,
    should_tail: bool = False,
    runner: Runner | None = None,
    streams: Stream | None = None,
) -> None:
    """Writes the logs that the identifier names; waits for the app to start.

    Raises:
        SystemExit: if the identifier is malformed or names no role of the app.
    """
    validate(identifier)
    target = _target(identifier, None)
    query = LogQuery(regex=regex, should_tail=should_tail, streams=streams)
    printer = LogPrinter(file)
    if runner is not None:
        _print_logs(printer, runner, target, query)
        return
    with get_runner() as own:
        _print_logs(printer, own, target, query)


def stream_logs(file: TextIO, runner: Runner, app_handle: str) -> None:
    """Follows all replicas of an app that has just been submitted, until it ends."""
    printer = LogPrinter(file)
    replicas: _Replicas = ()
    if is_terminal(file):
        replicas = replicas_of(runner, app_handle)
        printer.expect(replicas)
    query = LogQuery(should_tail=True)
    blocks = _merged_blocks(runner, app_handle, None, query)
    try:
        if blocks is not None:
            with unfinished_lines(len(replicas) == 1):
                _write_blocks(printer, blocks)
        else:
            validate(app_handle)
            _print_logs(printer, runner, _target(app_handle, None), query)
    finally:
        printer.finish()


def find_role_replicas(app: AppDef, role_name: str | None) -> list[tuple[str, int]]:
    """Returns role and index of every replica, or of those of one role."""
    return [
        (role.name, replica)
        for role in app.roles
        if role_name is None or role.name == role_name
        for replica in range(role.num_replicas)
    ]


def print_log_lines(
    file: TextIO,
    runner: Runner,
    app_handle: str,
    role_name: str,
    replica_id: int,
    regex: str | None,
    should_tail: bool,
    exceptions: "queue.Queue[Exception]",
    streams: Stream | None,
) -> None:
    """Writes the lines of one replica; a failure is put on the queue and raised."""
    query = LogQuery(regex=regex, should_tail=should_tail, streams=streams)
    from torchx.cli._log_replicas import print_replica, replica_reader

    lines = replica_reader(runner, app_handle, role_name, replica_id, query)
    print_replica(LogPrinter(file), lines, query, exceptions)


def _target(identifier: str, role: str | None) -> LogTarget:
    if role:
        identifier = f"{identifier.rstrip('/')}/{role}"
    validate(identifier)
    target = parse_identifier(identifier)
    assert target is not None  # `validate` has ended the command otherwise
    return target


def _print_logs(printer: LogPrinter, runner: Runner, target: LogTarget, query: LogQuery) -> bool:
    """Writes the lines; False if the scheduler does not know the app."""
    if target.ids:
        replicas: _Replicas = [(str(target.role), number) for number in target.ids]
        blocks = _merged_blocks(runner, target.handle, replicas, query)
    else:
        opened = _open_when_started(runner, target, query)
        if opened is None:
            message, hint = missing_app(target.scheduler, target.app_id)
            _output.log().error("%s\n%s", message, hint)
            return False
        replicas, blocks = opened
    printer.expect(replicas)
    if blocks is None:
        from torchx.cli._log_replicas import print_replicas

        print_replicas(printer, runner, target.handle, replicas, query)
    else:
        live = query.should_tail and query.regex is None and printer.is_terminal
        with unfinished_lines(live and len(replicas) == 1):
            _write_blocks(printer, blocks)
    return True


def _open_when_started(runner: Runner, target: LogTarget, query: LogQuery) -> _Opened | None:
    """Waits for the app to start; returns its replicas and output, `None` if it is unknown."""
    start = StartWait(target, query.should_tail)
    while True:
        try:
            status, opened = _open_if_started(runner, target, query)
        except BackendUnavailable as err:
            start.is_away(err)
            continue
        if opened is not None or status is None or is_started(status.state):
            return opened
        start.is_ahead(status)


def _open_if_started(
    runner: Runner, target: LogTarget, query: LogQuery
) -> tuple[AppStatus | None, _Opened | None]:
    with one_look(fresh=True):
        status = runner.status(target.handle)
        if status is None or not is_started(status.state):
            return status, None
        app = runner.describe(target.handle)
        if app is None:
            return status, None
        replicas = _replicas_of(app, target)
        return status, (replicas, _merged_blocks(runner, target.handle, replicas, query))


def _replicas_of(app: AppDef, target: LogTarget) -> _Replicas:
    """Returns the requested replicas; ends the command if the app has no such role."""
    replicas = find_role_replicas(app, target.role)
    if target.role is not None and not replicas:
        role, names = target.role, [role.name for role in app.roles]
        candidates = [f"{i}: {target.handle}/{name}" for i, name in enumerate(names)]
        _output.fail(
            f"app `{target.app_id}` has no role `{role}`.{did_you_mean(role, names)}",
            kind="UnknownRole",
            hint="\n  ".join(["choose one of:", *candidates]),
        )
    return replicas


def _merged_blocks(
    runner: Runner, handle: str, replicas: _Replicas | None, query: LogQuery
) -> Iterator[LogBlock] | None:
    """Merges all replicas by time; `None` if replicas can only be read one by one."""

    def read(should_tail: bool, **more: int) -> Iterator[LogBlock]:
        return runner.log_blocks(
            handle,
            replicas,
            regex=query.regex,
            since=query.since,
            until=query.until,
            should_tail=should_tail,
            streams=query.streams,
            attempt=query.attempt,
            **more,
        )

    if not hasattr(runner, "log_blocks") or _reads_lines_its_own_way(runner):
        return None
    try:
        if query.tail_lines is None:
            blocks = read(query.should_tail)
        else:
            blocks = _last_blocks(read, query.tail_lines, query.should_tail)
    except UnsupportedRequest:
        return None  # the reader of single replicas reports errors, if there are any
    return blocks if isinstance(blocks, Iterator) else None  # None for a substitute for the runner


_OUR_LOG_LINES, _OUR_LOG_BLOCKS = Runner.log_lines, Runner.log_blocks


def _reads_lines_its_own_way(runner: Runner) -> bool:
    """Returns True if a client has replaced the published method, which then takes precedence."""
    if not isinstance(runner, Runner):
        return False
    kind = type(runner)
    return kind.log_lines is not _OUR_LOG_LINES and kind.log_blocks is _OUR_LOG_BLOCKS


def _last_blocks(
    read: "Callable[..., Iterator[LogBlock]]", count: int, follow: bool
) -> Iterator[LogBlock]:
    try:
        return read(follow, tail_lines=count)
    except UnsupportedRequest:  # a scheduler of another package that cannot limit lines
        from torchx.cli._log_replicas import last_lines

        return last_lines(read(False), count, read if follow else None)


def _write_blocks(printer: LogPrinter, blocks: Iterable[LogBlock]) -> None:
    try:
        for block in blocks:
            printer.write(block.role, block.replica, block.attempt, block.text)
    except BrokenPipeError:
        printer.abandon()


def _verify(runner: Runner, target: LogTarget, attempt: int | None, as_json: bool) -> None:
    """Reports lines and bytes of every log; exits with 1 if something is missing."""
    replicas = [(str(target.role), number) for number in target.ids] or None
    found = runner.verify_logs(target.handle, replicas)
    reports = [report for report in found if target.role in (None, report.role)]
    if target.role is not None and not reports:
        names = [*dict.fromkeys(report.role for report in found)]
        msg = f"app `{target.app_id}` has no role `{target.role}`, it has: {', '.join(names)}."
        raise LogsNotFound(msg + did_you_mean(target.role, names))
    if attempt is not None:
        latest = max((report.attempt for report in reports), default=0)
        reports = [report for report in reports if report.attempt == attempt]
        if not reports:
            msg = f"there is no attempt {attempt} of app `{target.app_id}`, the latest is {latest}"
            raise LogsNotFound(msg)
    if as_json:
        _output.out_json([_report_json(report) for report in reports])
    else:
        headers = ["REPLICA", "ATTEMPT", "STREAM", "LINES", "BYTES", "COMPLETE", "PROBLEM"]
        _output.out_table(headers, [_report_row(report) for report in reports])
    if not all(report.complete for report in reports):
        raise SystemExit(1)


def _report_json(report: LogReport) -> dict[str, object]:
    return {
        "role": report.role,
        "replica": report.replica,
        "attempt": report.attempt,
        "stream": Stream(report.stream).value,
        "lines": report.lines,
        "bytes": report.bytes,
        "complete": report.complete,
        "problem": report.problem,
    }


def _report_row(report: LogReport) -> list[str]:
    return [
        f"{report.role}/{report.replica}",
        str(report.attempt),
        Stream(report.stream).value,
        str(report.lines),
        str(report.bytes),
        "yes" if report.complete else "NO",
        report.problem or "",
    ]
