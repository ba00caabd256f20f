"""How a case of the corpus is explained: as the scheduler itself does it, from its own words.

Each case names its source: ``recorded`` with the version of the engine on which it was recorded;
else a page of the vendor, or a file of the backend at a commit, which was opened and has the text;
else a file of ours, for words that we write ourselves. ``INVENTED`` marks what nobody documents: it
must stay unknown, or is there to show that a name which reads like a cause is taken for none.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from torchx.schedulers._core import explaining
from torchx.schedulers._core.log_query import LogChunk, LogKey, LogQuery
from torchx.schedulers._core.reading import LogReader
from torchx.schedulers._core.snapshot import AppSnapshot, ReplicaKey
from torchx.schedulers.causes import Cause, Explanation, Rule

CASES_AT_LEAST = 15
INVENTED = "invented"
SOURCES = ("recorded", "https://", "src/torchx/", INVENTED)


class Case(NamedTuple):
    """What a backend says, what the replica printed, and the cause of it."""

    cause: str
    source: str
    native: object
    printed: str = ""


def explained(snapshot: AppSnapshot, printed: str = "", words: Sequence[Rule] = ()) -> Explanation:
    """The explanation of an app whose first replica printed something."""

    def read(replicas: Sequence[ReplicaKey], query: LogQuery) -> Iterator[LogChunk]:
        for line in printed.splitlines(keepends=True):
            yield LogKey(*replicas[0]), None, line.encode()

    reader = LogReader(read, separate_streams=False, attempts=True) if printed else None
    return explaining.explain(snapshot, reader, words)


def check(case: Case, make: Callable[..., AppSnapshot], words: Sequence[Rule]) -> None:
    """Fails unless the case is explained by its cause, with evidence, in one line."""
    found = explained(make(case.native), case.printed, words)
    assert found.cause is Cause(case.cause), f"{found.line!r} of {found.evidence}"
    assert "\n" not in found.line
    assert "{" not in found.line.replace("{app}", "")
    assert case.source.startswith(SOURCES), case.source
