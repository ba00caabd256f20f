"""What is logged reads the same with and without ``logging``, which waits until it is needed."""

import re
import subprocess
import sys

SCRIPT = """
import sys
from torchx._startup.lazy_logger import get_logger
from torchx.cli import _output
_output.configure_logging(20)
logger = get_logger("torchx.any")
{calls}
print("logging" in sys.modules)
"""
LINE = re.compile(r"torchx \d{4}-\d\d-\d\d \d\d:\d\d:\d\d (\w+) +(.*)")


def logged(calls: str) -> "tuple[list[tuple[str, ...]], bool]":
    """Level and message of each line, and whether ``logging`` was imported."""
    script = SCRIPT.format(calls=calls)
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    found = [match.groups() for line in done.stderr.splitlines() if (match := LINE.match(line))]
    return found, done.stdout == "True\n"


CALLS = """
logger.debug("unseen")
logger.info("%s of %d", "one", 2)
logger.warning("50% of it")
logger.error("token=%s", "hunter2hunter2hunter2")
"""


def test_lines_are_those_that_logging_writes() -> None:
    plain, imported = logged(CALLS)
    assert [level for level, _ in plain] == ["INFO", "WARNING", "ERROR"]
    assert plain[:2] == [("INFO", "one of 2"), ("WARNING", "50% of it")]
    assert "hunter2" not in plain[2][1]
    assert not imported
    assert logged("import logging\n" + CALLS) == (plain, True)


def test_logging_takes_over_for_what_it_alone_can_do() -> None:
    found, imported = logged("logger.info('first')\nlogger.warning('second', stack_info=True)")
    assert found == [("INFO", "first"), ("WARNING", "second")]
    assert imported


def test_code_that_configures_logging_gets_the_records() -> None:
    calls = "import logging\nlogging.getLogger('torchx.any').disabled = True\nlogger.error('no')"
    assert logged(calls) == ([], True)
