"""All services of the fake, and the way of a request through them."""

import inspect
import itertools
import json
from typing import Any

from tests.fake_kube.http import Reply, Request, json_reply

from .faults import Faults
from .model import service_model, shape_problems
from .protocol import Asked, AwsFault, Params, parse_request, render_answer, render_fault
from .services import SERVICES


class Cloud:
    """The services of one account, in one region for all."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.services: dict[str, Any] = {}
        for make in SERVICES:
            service = make(self.services)
            self.services[service.name] = service
        self._ids = itertools.count(1)

    async def handle(self, request: Request) -> Reply:
        """The answer to any request."""
        if request.path.startswith("/_fake/"):
            return await self._admin(request)
        request_id = f"fake-{next(self._ids):06d}"
        try:
            asked = parse_request(request)
            fault = self.faults.begin(asked)
            if fault is not None:
                await fault.before()
            result = await self._carry_out(asked)
            if fault is not None:
                fault.after()
        except AwsFault as refused:
            return render_fault(refused, request_id, request)
        return render_answer(asked.service, asked.operation, result, request_id)

    async def _carry_out(self, asked: Asked) -> Params:
        operation = getattr(self.services.get(asked.service), asked.operation, None)
        if operation is None:
            msg = f"the fake has no {asked.service}:{asked.operation}"
            raise AwsFault("NotImplemented", msg, 501)
        model = service_model(asked.service).operation_model(asked.operation)
        found = shape_problems(model.input_shape, asked.params)
        if found:
            raise AwsFault("ValidationException", f"{asked.operation}: {'; '.join(found)}")
        result = operation(asked.params)
        if inspect.isawaitable(result):
            result = await result
        found = shape_problems(model.output_shape, result)
        assert not found, f"{asked.operation} of the fake answers with {found}"
        answer: Params = result
        return answer

    async def _admin(self, request: Request) -> Reply:
        what = request.path.removeprefix("/_fake/")
        if what == "faults":
            if request.body:
                self.faults.add(request.json())
            else:
                self.faults.faults.clear()
            return json_reply({})
        if what == "requests":
            found = json.loads(json.dumps([*self.faults.records], default=str))
            if request.method == "DELETE":
                self.faults.records.clear()
            return json_reply(found)
        if what == "reset":
            await self.close()
            self.__init__()  # type: ignore[misc]  # as new, with all services
            return json_reply({})
        service, _, name = what.partition("/")
        result = getattr(self.services[service], f"admin_{name}")(request.json())
        if inspect.isawaitable(result):
            result = await result
        return json_reply(result)

    async def close(self) -> None:
        """Ends all that runs."""
        for service in self.services.values():
            if hasattr(service, "close"):
                await service.close()
