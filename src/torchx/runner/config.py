"""Reads and writes ``.torchxconfig``: defaults for options, components, commands and trackers.

Files are searched in the home directory, then in the working directory; the first file that sets a
value wins. ``TORCHXCONFIG`` names one file that replaces both. ``Runner`` itself reads only the
tracker sections; programs call ``apply`` for the options of a scheduler, as the command line does.
"""

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TextIO

from torchx._startup.lazy_logger import get_logger
from torchx._words import closest
from torchx.errors import ConfigFileError as ConfigFileError
from torchx.errors import ConfigFileNotFound as ConfigFileNotFound
from torchx.errors import InvalidInput
from torchx.schedulers import (
    SCHEDULER_ALIASES,
    SchedulerFactory,
    canonical_name,
    get_scheduler_factories,
)
from torchx.schedulers.api import Scheduler
from torchx.settings import ENV_TORCHXCONFIG
from torchx.specs.api import CfgVal, InvalidRunConfigException, get_type_name, runopt, runopts
from torchx.util import entrypoints

if TYPE_CHECKING:
    from configparser import RawConfigParser

CONFIG_FILE = ".torchxconfig"
CONFIG_PREFIX_DELIM = ":"

DEFAULT_CONFIG_DIRS: list[str] = ["~", "."]
"""Folders searched for config files, highest priority first; ``~`` is expanded at each search."""

_PLACEHOLDER = "#FIXME:("
_PLACEHOLDER_CHARS = 60

logger = get_logger(__name__)


def find_configs(dirs: Iterable[str] | None = None) -> list[str]:
    """Returns the config files to read, highest priority first.

    Raises:
        FileNotFoundError: if ``TORCHXCONFIG`` names no file; set to nothing, it means none.
    """
    named = os.environ.get(ENV_TORCHXCONFIG)
    if named is not None:
        if named and not os.path.isfile(named):
            msg = f"`{ENV_TORCHXCONFIG}={named}` does not exist or is not a file."
            raise ConfigFileNotFound(msg)
        return [named] if named else []
    folders = list(dirs) if dirs is not None else []
    paths = [os.path.join(d, CONFIG_FILE) for d in folders or _default_dirs()]
    return [path for path in paths if os.path.isfile(path) and os.access(path, os.R_OK)]


def load(scheduler: str, f: TextIO, cfg: dict[str, CfgVal]) -> None:
    """Adds the options of section ``[<scheduler>]`` to ``cfg``, except for those already there.

    Raises:
        ValueError: for a value of the wrong type or a scheduler that does not exist.
    """
    name = getattr(f, "name", None)
    file = _File(str(name) if name is not None else CONFIG_FILE, f.read())
    _load(scheduler, file, cfg, lambda: _scheduler_opts(scheduler))


def apply(scheduler: str, cfg: dict[str, CfgVal], dirs: list[str] | None = None) -> None:
    """Calls ``load`` for each of ``find_configs(dirs)``.

    >>> cfg = {"log_dir": "/logs"}
    >>> apply("local_cwd", cfg, dirs=["/no/such/dir"])
    >>> cfg
    {'log_dir': '/logs'}
    """
    opts: list[runopts] = []

    def declared() -> runopts:
        if not opts:
            opts.append(_scheduler_opts(scheduler))
        return opts[0]

    for path in find_configs(dirs):
        _load(scheduler, _open(path), cfg, declared)


def load_sections(prefix: str, dirs: list[str] | None = None) -> dict[str, dict[str, str]]:
    """Returns all sections ``[<prefix>:<name>]`` by name, with their values as text."""
    merged: dict[str, dict[str, str]] = {}
    for path in find_configs(dirs):
        for title, values in _open(path).sections.items():
            kind, _, name = title.partition(CONFIG_PREFIX_DELIM)
            if kind and name and kind == prefix:
                section = merged.setdefault(name, {})
                for key, value in values.items():
                    section.setdefault(key, value)
    return merged


def get_configs(prefix: str, name: str, dirs: list[str] | None = None) -> dict[str, str]:
    """Returns section ``[<prefix>:<name>]``; empty if there is none."""
    return load_sections(prefix, dirs).get(name, {})


def get_config(prefix: str, name: str, key: str, dirs: list[str] | None = None) -> str | None:
    """Returns one value of section ``[<prefix>:<name>]``; ``None`` if it is not set."""
    return get_configs(prefix, name, dirs).get(key)


def dump(f: TextIO, schedulers: list[str] | None = None, required_only: bool = False) -> None:
    """Writes a template that loads as the defaults; writes nothing if there is an error.

    Args:
        schedulers: sections to write; all that can be loaded for ``None``.
        required_only: leave out what has a default.
    """
    factories = _all_factories()
    asked = list(factories) if schedulers is None else schedulers
    names = [_registered(name, factories) for name in asked]
    text = ""
    for name in names:
        try:
            opts = _make_opts(name, factories[name])
        except (Exception, SystemExit) as err:  # noqa: BLE001 - a plugin may fail in any way
            reason = err if isinstance(err, ImportError) else f"{type(err).__name__}: {err}"
            logger.warning("scheduler `%s` is left out, it cannot be loaded: %s", name, reason)
            continue
        text += _render_section(name, opts, required_only)
    f.write(text)


class _File:
    """The sections of one config file; ``[DEFAULT]`` gives values to all others."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        parser = _parse(path, text)
        self.sections = {
            title: {key: value.replace("%%", "%") for key, value in parser.items(title)}
            for title in parser.sections()
        }
        self.defaults = set(parser.defaults())

    def where(self, section: str, key: str) -> str:
        """Names an entry for a message."""
        inside = False
        for number, line in enumerate(self.text.splitlines(), 1):
            if line.startswith("["):
                inside = line.strip() == f"[{section}]"
            elif inside and line.replace(":", "=", 1).partition("=")[0].strip() == key:
                return f"{self.path}, line {number}: option `{key}` of section [{section}]"
        return f"{self.path}: option `{key}` of section [{section}]"


def _open(path: str) -> _File:
    try:
        with open(path, encoding="utf-8") as f:
            text = f.read()
    except (OSError, UnicodeDecodeError) as err:
        msg = f"cannot read config file `{path}`: {err}"
        raise ConfigFileError(msg) from None
    return _File(path, text)


def _parse(path: str, text: str) -> "RawConfigParser":
    import configparser

    # no interpolation: `log_dir=/x%Y` is a value like any other
    parser = configparser.RawConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # documented way to keep case
    try:
        parser.read_string(text)
    except configparser.Error as err:
        line, reason = _parse_problem(err)
        where = f"{path}, line {line}" if line else path
        msg = f"{where}: {reason}; write `[section]` lines and `key = value` lines below them"
        raise ConfigFileError(msg) from None
    return parser


def _parse_problem(err: Any) -> tuple[int | None, str]:
    """Returns line and reason of a parse error; the classes differ in their attributes."""
    import configparser

    if isinstance(err, configparser.MissingSectionHeaderError):
        return err.lineno, f"`{err.line.strip()}` is before any section"
    if isinstance(err, configparser.DuplicateOptionError):
        return err.lineno, f"option `{err.option}` is set twice in section [{err.section}]"
    if isinstance(err, configparser.DuplicateSectionError):
        return err.lineno, f"section [{err.section}] occurs twice"
    if isinstance(err, configparser.ParsingError) and err.errors:
        line, _text = err.errors[0]
        return line, "neither a section nor `key = value`"
    return None, str(err)


def _default_dirs() -> list[str]:
    folders = []
    for folder in DEFAULT_CONFIG_DIRS:
        path = os.path.expanduser(folder)
        try:
            folders.append(os.getcwd() if path == "." else path)
        except FileNotFoundError:  # the working directory was removed
            continue
    return folders


def _load(
    scheduler: str, file: _File, cfg: dict[str, CfgVal], declared: Callable[[], runopts]
) -> None:
    factories = _all_factories()
    scheduler = _registered(scheduler, factories)
    _warn_misspelt_sections(file, factories)
    aliases = [alias for alias, name in SCHEDULER_ALIASES.items() if name == scheduler]
    for title in (scheduler, *aliases):
        if title in file.sections:
            _load_section(title, file, cfg, declared())


def _load_section(scheduler: str, file: _File, cfg: dict[str, CfgVal], opts: runopts) -> None:
    section = file.sections[scheduler]
    given = {opts.canonical_key(key) or key for key in cfg}
    spelled: dict[str, str] = {}
    for key, text in section.items():
        name = opts.canonical_key(key)
        if name is None:
            if key not in file.defaults:
                _warn_unknown(file, scheduler, key, text, opts)
            continue
        if name in given:
            continue
        first = spelled.setdefault(name, key)
        if section[first] != text:
            reason = (
                f"{file.where(scheduler, key)} is also spelled `{first}`, with another value;"
                f" write it once, as `{name}`"
            )
            raise InvalidRunConfigException(reason, name, section)
        option = opts.get(name)
        assert option is not None, "a canonical key is registered"
        if option.is_required and text.startswith(
            _PLACEHOLDER
        ):  # other options have their default there
            logger.warning("%s is still to be filled in", file.where(scheduler, key))
            continue
        cfg[name] = _cast(option, text, file, scheduler, key)


def _cast(option: runopt, text: str, file: _File, section: str, key: str) -> CfgVal:
    if text == "None":
        return None
    try:
        return option.cast_to_type(text)
    except ValueError as err:
        type_name = get_type_name(option.opt_type) if option.opt_type else "no type"
        msg = f"{file.where(section, key)}: `{text}` is not of type {type_name}: {err}"
        raise InvalidInput(msg) from None


def _warn_misspelt_sections(file: _File, factories: dict[str, SchedulerFactory]) -> None:
    """Warns of sections that nearly match a scheduler's name; others may belong to a plugin."""
    known = [*factories, *SCHEDULER_ALIASES]
    for title in file.sections:
        if CONFIG_PREFIX_DELIM in title or title in known:
            continue
        meant = closest(title, known)
        if meant is not None:
            text = "%s: section [%s] is ignored, no scheduler has this name. Did you mean [%s]?"
            logger.warning(text, file.path, title, meant)


def _warn_unknown(file: _File, section: str, key: str, text: str, opts: runopts) -> None:
    logger.warning(
        "%s = `%s` is ignored: the scheduler has no such option%s",
        file.where(section, key),
        text,
        opts.suggestion(key),
    )


def _scheduler_opts(scheduler: str) -> runopts:
    factories = _all_factories()
    name = _registered(scheduler, factories)
    return _make_opts(name, factories[name])


def _all_factories() -> dict[str, SchedulerFactory]:
    factories = dict(get_scheduler_factories())
    for name, factory in entrypoints.load_group("torchx.schedulers.orchestrator").items():
        factories.setdefault(name, factory)
    return factories


def _registered(name: str, factories: dict[str, SchedulerFactory]) -> str:
    """Returns the name that a scheduler is registered by."""
    registered = canonical_name(name, factories)
    if registered not in factories:
        valid = ", ".join(factories)
        msg = f"`{name}` is not a registered scheduler. Valid scheduler names: {valid}"
        raise InvalidInput(msg)
    return registered


def _make_opts(name: str, factory: SchedulerFactory) -> runopts:
    scheduler = factory(session_name="_")
    assert isinstance(scheduler, Scheduler), f"the factory of `{name}` made a {type(scheduler)}"
    return scheduler.run_opts()


def _render_section(name: str, opts: runopts, required_only: bool) -> str:
    lines = [f"[{name}]"]
    for key, option in opts:
        if option.is_required:
            lines.append(f"{key} = {_escape(_placeholder(option))}")
        elif not required_only:
            lines.append(f"{key} = {_escape(_default_text(option.default))}")
    return "\n".join(lines) + "\n\n"


def _placeholder(option: runopt) -> str:
    type_name = get_type_name(option.opt_type) if option.opt_type else "str"
    text = f"{_PLACEHOLDER}{type_name}) {' '.join(option.help.split())}"
    return text if len(text) <= _PLACEHOLDER_CHARS else f"{text[:_PLACEHOLDER_CHARS]}..."


def _default_text(default: CfgVal) -> str:
    if default is None or default in ([], {}, ""):
        return "None"
    if isinstance(default, list):
        return ";".join(default)
    if isinstance(default, dict):
        return ";".join(f"{key}:{value}" for key, value in default.items())
    return str(default)


def _escape(text: str) -> str:
    return text.replace("%", "%%").replace("\n", "\n\t")
