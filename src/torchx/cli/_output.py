"""The output of the command line: results to stdout, log records to stderr, colour on terminals.

Nothing else in this package writes to stdout. Each stream is checked separately: ``torchx log X >
file`` writes no colour to the file, but still does to stderr on the terminal.
"""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import NoReturn, TextIO

COLOR_MODES = ("auto", "always", "never")
DATE_FORMAT = "%Y-%m-%d %H:%M:%S"


_DEBUG, _INFO = 10, 20
"""As in `logging`, which is not imported for them."""


class Palette:
    """Escape sequences for one stream; all empty if colour is off."""

    __slots__ = ("bold", "endc", "gray", "green", "orange", "red", "yellow")

    def __init__(self, enabled: bool) -> None:
        self.green = "\033[32m" if enabled else ""
        self.orange = "\033[38:2:238:76:44m" if enabled else ""
        self.gray = "\033[2m" if enabled else ""
        self.bold = "\033[1m" if enabled else ""
        self.red = "\033[31m" if enabled else ""
        self.yellow = "\033[33m" if enabled else ""
        self.endc = "\033[0m" if enabled else ""


class _Settings:
    """The settings from the global flags of the current call."""

    color = "auto"
    json = False
    json_written = False
    logging_is_ours = False
    level = 20
    clear: "Callable[[], object] | None" = None
    beside = 0


_settings = _Settings()


def reset() -> None:
    """Resets the settings of an earlier call in this process."""
    _settings.color = "auto"
    _settings.json = False
    _settings.json_written = False
    _settings.clear = None
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:  # characters of a job's line must never end the command
        reconfigure(errors="backslashreplace")


def set_color(mode: str) -> None:
    """Chooses one of `COLOR_MODES`."""
    _settings.color = mode


def set_json(wanted: bool) -> None:
    """With True, errors are written to stdout as one JSON object as well."""
    _settings.json = wanted


def colored(stream: "TextIO") -> bool:
    """Returns True if this stream gets colour: by the flag, NO_COLOR, FORCE_COLOR, a tty."""
    if _settings.color != "auto":
        return _settings.color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return os.environ.get("TERM") != "dumb" and _is_terminal(stream)


def _is_terminal(stream: "TextIO") -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # a substitute, or closed
        return False


def palette(stream: "TextIO") -> Palette:
    """Returns the colours for this stream."""
    return Palette(colored(stream))


def log() -> "logging.Logger":
    """Returns the logger of the command line, which imports `logging` only if needed."""
    from torchx._startup.lazy_logger import get_logger

    return get_logger("torchx.cli")


def configure_logging(level: int) -> None:
    """Sends log records to stderr in the form ``torchx TIME LEVEL MESSAGE``.

    Takes effect with the first record: importing `logging` costs a third of a bare start, and most
    commands log nothing.
    """
    from torchx._startup.lazy_logger import configure_later

    on = palette(sys.stderr)
    blue = "\033[34m" if on.endc else ""
    _settings.level = level
    form = f"{blue}torchx{on.endc} {on.gray}%(asctime)s %(levelname)-8s{on.endc} %(message)s"

    def configure() -> None:
        import logging

        root = logging.getLogger()
        if _settings.logging_is_ours:
            root.setLevel(level)
        elif not root.handlers:
            logging.basicConfig(level=level, format=form, datefmt=DATE_FORMAT)
            _settings.logging_is_ours = True
        if _settings.logging_is_ours:
            _shape(root, form)

    def write(number: int, name: str, message: str) -> None:
        if number < level:
            return
        import time

        from torchx._secrets import mask_message

        now = time.strftime(DATE_FORMAT)
        say(f"{blue}torchx{on.endc} {on.gray}{now} {name:<8}{on.endc} {mask_message(message)}")

    if "logging" in sys.modules:
        configure()
    else:
        configure_later(configure, None if is_calm() else write)


def is_calm() -> bool:
    """Returns True if records go to a terminal in short form; never for ``DEBUG``."""
    stderr = sys.stderr
    try:
        return stderr is not None and stderr.isatty() and _settings.level > _DEBUG
    except ValueError:  # stderr is closed
        return False


def is_quiet() -> bool:
    """Returns True if only results, warnings and errors are shown."""
    return _settings.level > _INFO


def say(text: str) -> None:
    """Writes lines for people to stderr; drops them once its reader has gone."""
    if sys.stderr is None:
        return
    make_room()
    note_line()
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # closed, or its reader has gone
        return


def _shape(root: "logging.Logger", form: str) -> None:
    """Sets the form in which our handler writes records."""
    from torchx import _passing

    _passing.show_on(None)
    if is_calm():
        from torchx.cli._calm import CalmHandler

        root.handlers[0] = CalmHandler()
    else:
        root.handlers[0].setFormatter(_masking(form))
    if is_quiet():
        _passing.show_on(_nowhere)


def _nowhere(_step: str) -> None:
    """Shows nothing of what goes on."""


def before_writing(clear: "Callable[[], object]") -> None:
    """Registers a call that clears the progress line before permanent lines are written."""
    _settings.clear = clear


def note_line() -> None:
    """Records that the terminal now shows something besides the output of stdout."""
    _settings.beside += 1


def lines_beside() -> int:
    """Returns how often something besides the output of stdout was written to the terminal."""
    return _settings.beside


def make_room() -> None:
    """Clears the progress line from the terminal."""
    if _settings.clear is not None:
        _settings.clear()


def _masking(form: str) -> "logging.Formatter":
    """Returns a formatter that masks secrets in records and their tracebacks."""
    import logging

    from torchx._secrets import mask_message

    class Masking(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return mask_message(super().format(record))

    return Masking(form, DATE_FORMAT)


def out(text: str, end: str = "\n") -> None:
    """Writes a result to stdout and flushes it; drops it if stdout was closed from the start."""
    stdout = sys.stdout
    if stdout is None:
        return
    make_room()
    write(stdout, text + end)


def stdout() -> "TextIO":
    """Returns the stream for results; discards them if stdout was closed from the start."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it stays open
    return sys.stdout


def write(stream: "TextIO | None", text: str) -> None:
    """Writes to the stream and flushes it; does nothing if it was closed before the start.

    Raises:
        BrokenPipeError: if the reader has gone.
        UnwritableOutput: if the stream cannot be written, for example because the disk is full.
    """
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as err:
        if stream is sys.stdout:
            close_stdout()  # or the interpreter would fail again on the rest at exit
        from torchx.errors import UnwritableOutput

        msg = f"the output cannot be written: {err.strerror or err}"
        raise UnwritableOutput(msg) from None


def out_json(value: object) -> None:
    """Writes one JSON document and a newline; other types become text."""
    import json

    _settings.json_written = True
    out(json.dumps(value, default=str))


def out_table(headers: "Sequence[str]", rows: "Iterable[Sequence[str]]") -> None:
    """Writes left-aligned columns, under dashed headers or within the width of a terminal."""
    if sys.stdout is None or not _is_terminal(sys.stdout):
        out(table_text(headers, rows))
        return
    from torchx.cli._look import Look
    from torchx.cli._table import fitted

    lines = fitted(Look(sys.stdout), headers, [*rows], flexible=range(len(headers) - 1, 0, -1))
    out("\n".join(lines))


def table_text(headers: "Sequence[str]", rows: "Iterable[Sequence[str]]") -> str:
    """Formats left-aligned columns under dashed headers, two spaces apart."""
    shown = [tuple(headers), *map(tuple, rows)]
    widths = [max(map(len, cells)) for cells in zip(*shown, strict=True)]
    shown.insert(1, tuple("-" * width for width in widths))
    form = "  ".join([f"%-{width}s" for width in widths])
    return "\n".join([(form % cells).rstrip() for cells in shown])  # of maybe 10,000 rows


def error_json(
    kind: str, message: str, hint: str | None = None, more: "Mapping[str, object] | None" = None
) -> None:
    """Writes the JSON form of an error, once, and only if JSON was requested.

    Args:
        more: further keys of the object.
    """
    if not _settings.json or _settings.json_written:
        return
    from torchx._secrets import mask_data, mask_message

    error: dict[str, object] = {"type": kind, "message": mask_message(message)}
    if hint:
        error["hint"] = mask_message(hint)
    error.update(mask_data(more or {}, mask_message))
    out_json({"error": error})


def fail(
    message: str,
    *,
    kind: str,
    hint: str | None = None,
    code: int = 1,
    lines: "Sequence[str]" = (),
    more: "Mapping[str, object] | None" = None,
) -> "NoReturn":
    """Reports an error on stderr (and as JSON if requested) and ends the command.

    Args:
        lines: lines that stderr shows below the message and the hint.
        more: further keys of the JSON.
    """
    log().error("%s", "\n".join([message, *([hint] if hint else []), *lines]))
    error_json(kind, message, hint, more)
    sys.exit(code)  # noqa: TID251 - clients replace `sys.exit` to detect the end of a command
    raise SystemExit(code)


def close_stdout() -> None:
    """Discards stdout after its reader has gone, so that the interpreter does not fail at exit."""
    try:
        number = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # a substitute, or closed
        return
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, number)
    os.close(devnull)
