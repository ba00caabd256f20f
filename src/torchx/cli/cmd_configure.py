"""``torchx configure``: a ``.torchxconfig`` to fill in."""

import argparse
import io
from collections.abc import Iterable
from pathlib import Path

from torchx._files import replace_file
from torchx._startup.lazy_logger import get_logger
from torchx._words import did_you_mean
from torchx.cli import _arguments, _output
from torchx.cli.cmd_base import SubCommand
from torchx.runner import config
from torchx.schedulers import canonical_name, get_scheduler_factories

logger = get_logger(__name__)  # clients replace it

EPILOG = """\
examples:
  torchx configure -s slurm            required options of one scheduler, to ./.torchxconfig
  torchx configure -s local_cwd -a     optional ones as well, with their defaults
  torchx configure --print             to the terminal"""


class CmdConfigure(SubCommand):
    """Writes the options of schedulers to ``./.torchxconfig``."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = (
            "Write the options of schedulers to ./.torchxconfig, one section each."
            " Sections of other schedulers stay as they are."
        )
        subparser.epilog = EPILOG
        subparser.add_argument(
            "-s",
            "--schedulers",
            type=str,
            default="",
            metavar="NAME[,...]",
            help="only these schedulers (default: all)",
        )
        subparser.add_argument("--print", action="store_true", help="write to stdout, no file")
        subparser.add_argument(
            "-a", "--all", action="store_true", help="optional options too, with their defaults"
        )
        subparser.add_argument(
            "--force", action="store_true", help="replace sections that the file already has"
        )
        _arguments.add_json(subparser)

    def run(self, args: argparse.Namespace) -> None:
        names = _scheduler_names(args.schedulers)
        rendered = io.StringIO()
        config.dump(rendered, names, required_only=not args.all)
        text = rendered.getvalue()
        if args.print:
            if args.json:
                _output.out_json({"path": None, "text": text})
            else:
                _output.out(text, end="")
            return
        sections = _sections(text)
        try:
            path = Path(config.CONFIG_FILE).absolute()
            _write(path, _merged(path, sections, args.force))
        except OSError as err:  # the folder was removed, or may not be written to
            _output.fail(
                f"{config.CONFIG_FILE} cannot be written here: {err.strerror or err}",
                kind=type(err).__name__,
                hint="change to a folder of your own, or use --print",
            )
        if args.json:
            _output.out_json({"path": str(path), "schedulers": [name for name, _ in sections]})
        else:
            _output.log().info("wrote `%s`", path)


def _scheduler_names(text: str) -> list[str] | None:
    """Parses the names of schedulers; `None` for all of them."""
    valid = list(get_scheduler_factories())
    names = [canonical_name(name.strip(), valid) for name in text.split(",") if name.strip()]
    for name in names:
        if name not in valid:
            _output.fail(
                f"`{name}` is not a registered scheduler. Valid scheduler names:"
                f" {', '.join(valid)}.{did_you_mean(name, valid)}",
                kind="UnknownSchedulerException",
                code=2,
            )
    return names or None


def _merged(path: Path, new: list[tuple[str, str]], force: bool) -> str:
    """Returns the file's new text: its content, with new sections appended or replaced."""
    try:
        old_text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return _joined(text for _, text in new)
    preamble, old = _preamble(old_text), _sections(old_text)
    replaced = {name for name, _ in old} & {name for name, _ in new}
    if replaced and not force:
        _output.fail(
            f"`{path}` already has {', '.join(f'[{name}]' for name in sorted(replaced))},"
            " nothing was written",
            kind="FileExistsError",
            hint="use --force to replace these sections, or --print to see the new ones",
        )
    if not replaced:  # existing text is kept unchanged
        kept_text = f"{old_text.rstrip()}\n\n" if old_text.strip() else ""
        return kept_text + _joined(text for _, text in new)
    kept = [preamble, *(text for name, text in old if name not in replaced)]
    return _joined([*kept, *(text for _, text in new)])


def _joined(blocks: Iterable[str]) -> str:
    texts = [text.strip("\n") for text in blocks]
    return "\n\n".join(text for text in texts if text) + "\n"


def _preamble(text: str) -> str:
    """Returns the text before the first section."""
    lines = text.splitlines(keepends=True)
    first = next((i for i, line in enumerate(lines) if _section_name(line)), len(lines))
    return "".join(lines[:first])


def _sections(text: str) -> list[tuple[str, str]]:
    """Returns name and text of each section, comments included."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines(keepends=True):
        name = _section_name(line)
        if name:
            found.append((name, []))
        if found:
            found[-1][1].append(line)
    return [(name, "".join(lines)) for name, lines in found]


def _section_name(line: str) -> str | None:
    """Returns the name in a line such as ``[slurm]``; ``None`` for other lines."""
    if not line.startswith("["):
        return None
    name, closed, _ = line[1:].partition("]")
    return name if closed else None


def _write(path: Path, text: str) -> None:
    """Replaces the file atomically, through links and with its permissions."""
    target = path.resolve()
    mode = target.stat().st_mode & 0o777 if target.exists() else None
    replace_file(str(target), text.encode(), mode=mode)
