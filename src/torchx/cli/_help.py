"""The text of ``torchx --help``, which is shown without creating any parser."""

TYPE_CHECKING = False  # see `torchx/_startup/__init__.py`
if TYPE_CHECKING:
    from collections.abc import Iterable

USAGE = "torchx [-q] [-v] [--log_level LEVEL] [--color WHEN] COMMAND [ARGS ...]"

_COMMANDS = {
    "builtins": "list the built-in components",
    "cancel": "cancel an app",
    "completion": "print the script for completion in your shell",
    "configure": "write a .torchxconfig to fill in",
    "delete": "delete an app from its scheduler (also: rm)",
    "describe": "show the definition of an app",
    "doctor": "check what the schedulers need",
    "exec": "run a command in a running replica",
    "list": "list the apps of a scheduler (also: ps)",
    "log": "print the logs of an app (also: logs)",
    "plugins": "show what installed packages add",
    "port-forward": "reach ports of a replica from here",
    "prune": "remove records of old local jobs",
    "rerun": "launch a recorded request again",
    "run": "run a component as an app",
    "runopts": "show the options of the schedulers",
    "shell": "open a shell in a running replica",
    "status": "show the state of an app",
    "tracker": "show what runs have tracked",
    "why": "say why an app waits or failed, and what to do",
}

_BEFORE = f"""\
usage: {USAGE}

Launch PyTorch jobs: write a job once, run it anywhere.

commands:
"""

_AFTER = """
options:
  -h, --help         show this help and exit
  -V, --version      print the version and exit
  -q, --quiet        print only results, warnings and errors
  -v                 say all, with times, as --log_level DEBUG
  --log_level LEVEL  records to show: DEBUG, INFO, WARNING, ERROR, CRITICAL or
                     a number (default: $LOGLEVEL or INFO)
  --color WHEN       auto (on terminals), always or never; NO_COLOR and
                     FORCE_COLOR are respected

examples:
  torchx run utils.echo --msg hello
  torchx run -s slurm dist.ddp -j 2x8 --script train.py
  torchx status                              the app that was launched last
  torchx logs -f train                       follow the app whose id starts so
  torchx COMMAND --help                      arguments and examples of a command
"""


def render(names: "Iterable[str]") -> str:
    """Returns the help for these commands; those not built in are marked as plugins'."""
    lines = [f"  {name:<17}  {purpose(name)}\n" for name in names]
    from torchx.util._terminal import fitted_help

    return fitted_help(_BEFORE + "".join(lines) + _AFTER)


def purpose(name: str) -> str:
    """Returns the purpose of a command, in a few words."""
    return _COMMANDS.get(name, "from a plugin")
