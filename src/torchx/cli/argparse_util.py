"""Actions for options that may be given once and have their default in ``.torchxconfig``."""

import argparse
from typing import TYPE_CHECKING

from torchx._words import FALSE_WORDS, TRUE_WORDS, did_you_mean, parse_bool
from torchx.cli import _output
from torchx.errors import InvalidInput

if TYPE_CHECKING:
    import weakref
    from collections.abc import Sequence
    from typing import Any


# keys of a section that are not the name of a flag
_EXTRA_KEYS = {"run": ("component",)}

# commands that work from the config: for these a broken file is an error, for others a warning
_NEED_CONFIG = ("run", "list")


class BadDefault(InvalidInput):
    """A default in the section of a command cannot be used."""


class ConfigText(str):
    """A default from a config file, so that errors can name its origin."""

    __slots__ = ("origin",)
    origin: str


class ArgOnceAction(argparse.Action):
    """Stores a value; the same option string a second time ends the command with exit code 2."""

    _parse: "weakref.ref[argparse.Namespace] | None" = None
    _used: set[str]

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: "str | Sequence[Any] | None",
        option_string: str | None = None,
    ) -> None:
        import weakref

        if self._parse is None or self._parse() is not namespace:  # a new parse begins
            self._parse = weakref.ref(namespace)
            self._used = set()
        if option_string in self._used:
            msg = f"{option_string} is given more than once, give it once"
            _output.fail(msg, kind="UsageError", code=2)
        self._used.add(option_string or "")
        setattr(namespace, self.dest, values)


class torchxconfig(ArgOnceAction):
    """An option whose default is key `dest` of the section ``[cli:<subcmd>]``."""

    # read once per process; clients clear it to have the files read again
    _subcmd_configs: dict[str, dict[str, str]] = {}  # noqa: RUF012 - mutable and shared on purpose
    _errors: dict[str, Exception] = {}  # noqa: RUF012 - errors of reading, reported when they matter

    def __init__(
        self,
        subcmd: str,
        dest: str,
        option_strings: "Sequence[str]",
        required: bool = False,
        default: "Any" = None,  # argparse takes any default
        **kwargs: "Any",  # argparse's own keywords
    ) -> None:
        config = self.section(subcmd)
        if dest in config:
            default = from_config(subcmd, config[dest])
        if default:
            required = False
        super().__init__(
            dest=dest, option_strings=option_strings, required=required, default=default, **kwargs
        )

    @classmethod
    def section(cls, subcmd: str) -> dict[str, str]:
        """Returns the section of a command; empty if unreadable, which is reported later."""
        found = torchxconfig._subcmd_configs.get(subcmd)
        if found is None:
            from torchx.runner import config

            torchxconfig._errors.pop(subcmd, None)
            try:
                found = config.get_configs(prefix="cli", name=subcmd)
            except Exception as err:  # noqa: BLE001 - whatever it is, help and version must work
                torchxconfig._errors[subcmd] = err
                return {}
            torchxconfig._subcmd_configs[subcmd] = found
        return found


class torchxconfig_run(torchxconfig):
    """`torchxconfig` for ``torchx run``."""

    def __init__(
        self,
        dest: str,
        option_strings: "Sequence[str]",
        required: bool = False,
        default: "Any" = None,  # argparse takes any default
        **kwargs: "Any",  # argparse's own keywords
    ) -> None:
        super().__init__("run", dest, option_strings, required, default, **kwargs)


class torchxconfig_list(torchxconfig):
    """`torchxconfig` for ``torchx list``."""

    def __init__(
        self,
        dest: str,
        option_strings: "Sequence[str]",
        required: bool = False,
        default: "Any" = None,  # argparse takes any default
        **kwargs: "Any",  # argparse's own keywords
    ) -> None:
        super().__init__("list", dest, option_strings, required, default, **kwargs)


def from_config(subcmd: str, value: str) -> ConfigText:
    """Returns the value with the section that it comes from."""
    text = ConfigText(value)
    text.origin = f"section [cli:{subcmd}] of .torchxconfig"
    return text


def apply_config_defaults(parser: argparse.ArgumentParser, subcmd: str) -> None:
    """Uses the section ``[cli:<subcmd>]`` as defaults of a command's flags."""
    section = torchxconfig.section(subcmd)
    if not section:
        return
    actions = _flags(parser)
    for key, value in section.items():
        action = actions.get(key)
        if action is None:
            continue
        default = _flag_value(action, key, subcmd, value)
        action.required = False
        parser.set_defaults(**{key: default})


def report_config(parser: argparse.ArgumentParser, subcmd: str) -> None:
    """Raises or logs errors in the config of the command that now runs."""
    err = torchxconfig._errors.get(subcmd)
    if err is not None:
        if subcmd in _NEED_CONFIG or isinstance(err, BadDefault):
            raise err
        _output.log().warning("the defaults in .torchxconfig are not used: %s", err)
    known = [*_flags(parser), *_EXTRA_KEYS.get(subcmd, ())]
    for key in torchxconfig.section(subcmd):
        if key not in known:
            _output.log().warning(
                "`%s` in section [cli:%s] is not an option of `torchx %s` and is ignored.%s",
                key,
                subcmd,
                subcmd,
                did_you_mean(key, known),
            )


def _flags(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Returns the options of the parser by `dest`; argparse has no public list of options."""
    return {a.dest: a for a in parser._actions if a.option_strings and a.dest != "help"}


def _flag_value(action: argparse.Action, key: str, subcmd: str, value: str) -> "str | bool":
    """Converts a config's text to a default of the flag; the command reports errors."""
    if action.nargs != 0:
        if action.choices is not None and value not in action.choices:
            _refuse(key, subcmd, value, list(action.choices))
        return from_config(subcmd, value)
    found = parse_bool(value.strip())
    if found is None:
        _refuse(key, subcmd, value, [*TRUE_WORDS, *FALSE_WORDS])
    return bool(found)


def _refuse(key: str, subcmd: str, value: str, allowed: "Sequence[str]") -> None:
    torchxconfig._errors[subcmd] = BadDefault(
        f"`{key} = {value}` in section [cli:{subcmd}] of .torchxconfig: write one of"
        f" {', '.join(allowed)}.{did_you_mean(value, allowed)}"
    )
