"""What goes wrong, chosen by tests over the admin endpoint, and the record of requests."""

import asyncio
import re
from collections import deque
from dataclasses import dataclass
from typing import Any

from tests.fake_kube.http import Dropped

from .protocol import Asked, AwsFault

_CODES = {
    "throttle": ("ThrottlingException", "Rate exceeded", 400),
    "server_error": ("InternalFailure", "Internal server error", 500),
    "expired": (
        "ExpiredTokenException",
        "The security token included in the request is expired",
        403,
    ),
    "denied": (
        "AccessDeniedException",
        "User: arn:aws:iam::123456789012:user/tester is not authorized to perform that",
        403,
    ),
}


@dataclass
class Fault:
    """Meets requests whose title ``service:Operation {parameters}`` matches.

    Args:
        action: ``throttle``, ``server_error``, ``expired``, ``denied``; ``refuse`` (answer with
            ``code``, ``message`` and ``status``); ``drop`` (close at once); ``lose`` (carry it out,
            then close); ``slow`` (wait ``seconds`` first).
        match: regular expression, found somewhere in the title.
        skip: requests that pass first.
        times: requests that it meets; negative for all.
    """

    action: str
    match: str = ""
    skip: int = 0
    times: int = 1
    code: str = "ClientException"
    message: str = "injected"
    status: int = 400
    seconds: float = 0.0

    async def before(self) -> None:
        """What happens before the request is carried out."""
        if self.action == "drop":
            raise Dropped
        if self.action == "slow":
            await asyncio.sleep(self.seconds)
        if self.action == "refuse":
            raise AwsFault(self.code, self.message, self.status)
        if self.action in _CODES:
            raise AwsFault(*_CODES[self.action])

    def after(self) -> None:
        """What happens when it was carried out."""
        if self.action == "lose":
            raise Dropped


class Faults:
    """The faults in force, and what was asked."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.records: deque[dict[str, Any]] = deque(maxlen=100_000)

    def add(self, description: dict[str, Any]) -> None:
        """One more fault."""
        self.faults.append(Fault(**description))

    def begin(self, asked: Asked) -> Fault | None:
        """Records a request and finds the fault that it meets."""
        self.records.append(
            {
                "call": f"{asked.service}:{asked.operation}",
                "params": asked.params,
                "region": asked.region,
                "access_key": asked.access_key,
            }
        )
        for fault in self.faults:
            if not re.search(fault.match, asked.title):
                continue
            if fault.skip > 0:
                fault.skip -= 1
            elif fault.times != 0:
                fault.times -= 1
                return fault
        return None
