"""From HTTP to the parameters of an operation, and from its result back, by botocore's model."""

import base64
import json
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from tests.fake_kube.http import Reply, Request

from .model import service_model
from .xml_protocol import parse_query, parse_s3, render_query, render_s3, render_xml_fault

Params = dict[str, Any]
_SCOPE = re.compile(
    r"Credential=(?P<key>[^/]+)/\d+/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request"
)


class AwsFault(Exception):
    """An error as AWS answers it.

    Args:
        code: its name, as ``ClientException``.
        status: of HTTP.
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


class Asked:
    """A request that was understood."""

    def __init__(self, service: str, operation: str, params: Params, region: str, key: str) -> None:
        self.service = service
        self.operation = operation
        self.params = params
        self.region = region
        self.access_key = key

    @property
    def title(self) -> str:
        """By which faults find it: ``batch:SubmitJob {...}``."""
        return f"{self.service}:{self.operation} {json.dumps(self.params, default=str)}"


def parse_request(request: Request) -> Asked:
    """The operation and its parameters.

    Raises:
        AwsFault: if it is not signed, or no operation of a known service.
    """
    scope = _SCOPE.search(request.headers.get("authorization", ""))
    if scope is None:
        raise AwsFault("MissingAuthenticationToken", "Missing Authentication Token", 403)
    service = scope["service"]
    model = service_model(service)
    operation, params = _PARSE[model.metadata["protocol"]](model, request)
    return Asked(service, operation, params, scope["region"], scope["key"])


def _protocol(service: str) -> str:
    return str(service_model(service).metadata["protocol"])


def _parse_json(model: Any, request: Request) -> tuple[str, Params]:
    target = request.headers.get("x-amz-target", "")
    operation = target.rpartition(".")[2]
    if operation not in model.operation_names:
        raise AwsFault("UnknownOperationException", f"{target} is not known")
    shape = model.operation_model(operation).input_shape
    body = json.loads(request.body or b"{}")
    return operation, _read(shape, body) if shape is not None else {}


def _parse_rest(model: Any, request: Request) -> tuple[str, Params]:
    raw_path = request.path
    for operation in model.operation_names:
        http = model.operation_model(operation).http
        uri, _, _ = http["requestUri"].partition("?")
        names = re.findall(r"\{(\w+)\+?\}", uri)
        pattern = re.sub(r"\\\{\w+\\\}", "([^/]+)", re.escape(uri))
        pattern = re.sub(r"\\\{\w+\\\+\\\}", "(.+)", pattern)
        found = re.fullmatch(pattern, raw_path)
        if found and http["method"] == request.method:
            labels = dict(zip(names, map(unquote, found.groups()), strict=True))
            shape = model.operation_model(operation).input_shape
            return operation, _rest_params(shape, request, labels)
    raise AwsFault("UnknownOperationException", f"{request.method} {raw_path} is not known", 404)


def _rest_params(shape: Any, request: Request, labels: Mapping[str, str]) -> Params:
    if shape is None:
        return {}
    body = json.loads(request.body) if request.body else {}
    query = parse_qs(request.raw_query, keep_blank_values=True)
    params: Params = {}
    for name, member in shape.members.items():
        where = member.serialization.get("location")
        wire = member.serialization.get("name", name)
        if where == "uri" and wire in labels:
            params[name] = labels[wire]
        elif where == "querystring" and wire in query:
            params[name] = query[wire] if member.type_name == "list" else query[wire][0]
        elif where == "header" and wire.lower() in request.headers:
            params[name] = request.headers[wire.lower()]
        elif where is None and wire in body:
            params[name] = _read(member, body[wire])
    unknown = sorted(set(body) - {m.serialization.get("name", n) for n, m in shape.members.items()})
    for name in unknown:
        params[name] = body[name]  # for the check to refuse
    return params


def _read(shape: Any, value: Any) -> Any:
    """A value of a body as botocore's users know it."""
    if value is None:
        return None
    kind = shape.type_name
    if kind == "structure":
        by_wire = {m.serialization.get("name", n): (n, m) for n, m in shape.members.items()}
        found = {}
        for wire, item in value.items():
            name, member = by_wire.get(wire, (wire, None))
            found[name] = item if member is None else _read(member, item)
        return found
    if kind == "list":
        return [_read(shape.member, item) for item in value]
    if kind == "map":
        return {key: _read(shape.value, item) for key, item in value.items()}
    if kind == "timestamp":
        return datetime.fromtimestamp(value, timezone.utc)
    if kind == "blob":
        return base64.b64decode(value)
    return value


_PARSE = {
    "json": _parse_json,
    "rest-json": _parse_rest,
    "query": parse_query,
    "rest-xml": parse_s3,
}


# -- answers -------------------------------------------------------------------------------------


def render_answer(service: str, operation: str, result: Params, request_id: str) -> Reply:
    """The answer of an operation."""
    if _protocol(service) == "query":
        return render_query(service_model(service), operation, result, request_id)
    if _protocol(service) == "rest-xml":
        return render_s3(result, request_id)
    shape = service_model(service).operation_model(operation).output_shape
    body = json.dumps(_write(shape, result) if shape is not None else {}).encode()
    return Reply(200, body, {"x-amzn-RequestId": request_id}, "application/x-amz-json-1.1")


def render_fault(fault: AwsFault, request_id: str, request: Request) -> Reply:
    """An error."""
    scope = _SCOPE.search(request.headers.get("authorization", ""))
    if scope is not None and _protocol(scope["service"]) in ("query", "rest-xml"):
        return render_xml_fault(fault.code, fault.message, fault.status, request, request_id)
    body = json.dumps({"__type": fault.code, "message": fault.message}).encode()
    headers = {"x-amzn-RequestId": request_id, "x-amzn-ErrorType": quote(fault.code)}
    return Reply(fault.status, body, headers, "application/x-amz-json-1.1")


def _write(shape: Any, value: Any) -> Any:
    kind = shape.type_name
    if value is None:
        return None
    if kind == "structure":
        return {
            member.serialization.get("name", name): _write(member, value[name])
            for name, member in shape.members.items()
            if value.get(name) is not None
        }
    if kind == "list":
        return [_write(shape.member, item) for item in value]
    if kind == "map":
        return {key: _write(shape.value, item) for key, item in value.items()}
    if kind == "timestamp":
        return value.timestamp() if isinstance(value, datetime) else value
    if kind == "blob":
        return base64.b64encode(value).decode()
    return value
