"""What goes wrong, chosen by tests over the admin endpoint, and the record of requests."""

import asyncio
import re
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

from .http import Dropped, Reply, Request
from .statuses import ApiFailure, unauthorized


@dataclass
class Fault:
    """Meets requests whose method and target match.

    Args:
        action: ``status`` (answer with ``code``), ``drop`` (close at once), ``lose`` (carry it out,
            then close), ``after`` (carry it out, then answer with ``code``), ``slow`` (wait
            ``seconds`` first), ``late`` (carry it out, then wait ``seconds``), ``cut`` (end the
            stream after one of ``places`` bytes), ``truncate`` (send so many bytes of the answer as
            if that was all), ``text`` (answer with ``message`` in its place).
        match: regular expression, found somewhere in ``METHOD /path?query``.
        skip: requests that pass first.
        times: requests that it meets; negative for all.
        places: of cuts, in turn.
        clean: a cut looks like the end of the stream.
    """

    action: str
    match: str = ""
    skip: int = 0
    times: int = 1
    code: int = 500
    reason: str = "InternalError"
    message: str = "injected"
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    places: list[int] = field(default_factory=list)
    clean: bool = False
    met: int = 0


@dataclass
class Record:
    """One request that was answered."""

    method: str
    target: str
    code: int = 0
    user_agent: str = ""


class Faults:
    """The faults in force, valid tokens, and what was asked."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.tokens: set[str] = set()
        self.records: deque[Record] = deque(maxlen=100_000)

    def add(self, description: dict[str, Any]) -> None:
        self.faults.append(Fault(**description))

    def requests(self) -> list[dict[str, Any]]:
        return [asdict(record) for record in self.records]

    def begin(self, request: Request) -> tuple[Record, Fault | None]:
        """Records the request and finds the fault that it meets."""
        target = f"{request.path}?{request.raw_query}" if request.raw_query else request.path
        record = Record(request.method, target, 0, request.headers.get("user-agent", ""))
        self.records.append(record)
        for fault in self.faults:
            if not re.search(fault.match, f"{request.method} {target}"):
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            if fault.times != 0:
                fault.times -= 1
                fault.met += 1
                return record, fault
        return record, None

    async def before(self, request: Request, fault: Fault | None) -> None:
        """What happens before the request is carried out."""
        if self.tokens:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            if scheme != "Bearer" or token not in self.tokens:
                raise unauthorized()
        if fault is None:
            return
        if fault.action == "slow":
            await asyncio.sleep(fault.seconds)
        elif fault.action == "drop":
            raise Dropped
        elif fault.action == "status":
            raise _failure(fault)

    async def after(self, reply: Reply, fault: Fault | None) -> Reply:
        """What becomes of the answer."""
        if fault is None:
            return reply
        if fault.action == "late":
            await asyncio.sleep(fault.seconds)
        if fault.action == "truncate" and reply.stream is None:
            reply.body = reply.body[: fault.places[(fault.met - 1) % len(fault.places)]]
        if fault.action == "text":
            return Reply(body=fault.message.encode(), content_type="text/plain")
        if fault.action == "lose":
            raise Dropped
        if fault.action == "after":
            return _failure(fault).reply()
        if fault.action == "cut" and reply.stream is not None and fault.places:
            reply.cut_after = fault.places[(fault.met - 1) % len(fault.places)]
            reply.cut_cleanly = fault.clean
        return reply


def _failure(fault: Fault) -> ApiFailure:
    return ApiFailure(fault.code, fault.reason, fault.message, headers=fault.headers)
