"""The protocols of AWS that answer with XML: ``query``, and what S3 needs of ``rest-xml``."""

import re
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.fake_kube.http import Reply, Request

Params = dict[str, Any]
XML = "text/xml"
_S3_OPERATIONS = {
    ("HEAD", False): "HeadBucket",
    ("PUT", False): "CreateBucket",
    ("HEAD", True): "HeadObject",
    ("PUT", True): "PutObject",
}


def parse_query(model: Any, request: Request) -> tuple[str, Params]:
    """The operation of a form, with parameters that are texts."""
    form = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
    operation = form.pop("Action")
    form.pop("Version", None)
    return operation, dict(form)


def parse_s3(model: Any, request: Request) -> tuple[str, Params]:
    """The operation on a bucket or an object, whose bucket is the first part of the path."""
    bucket, _, key = request.path.lstrip("/").partition("/")
    operation = _S3_OPERATIONS[request.method, bool(key)]
    params: Params = {"Bucket": bucket}
    if key:
        params["Key"] = key
    if operation == "PutObject":
        params["Body"] = request.body
    elif operation == "CreateBucket" and request.body:
        root = ElementTree.fromstring(request.body)
        place = next((e.text for e in root.iter() if e.tag.endswith("LocationConstraint")), None)
        params["CreateBucketConfiguration"] = {"LocationConstraint": place}
    return operation, params


def render_query(model: Any, operation: str, result: Params, request_id: str) -> Reply:
    """The answer of an operation of ``query``."""
    shape = model.operation_model(operation).output_shape
    inner = _xml(shape, result)
    wrapper = shape.serialization["resultWrapper"]
    body = (
        f"<{operation}Response><{wrapper}>{inner}</{wrapper}><ResponseMetadata>"
        f"<RequestId>{request_id}</RequestId></ResponseMetadata></{operation}Response>"
    )
    return Reply(200, body.encode(), {"x-amzn-RequestId": request_id}, XML)


def render_s3(result: Params, request_id: str) -> Reply:
    """The answer of S3, all of it in headers."""
    headers = {re.sub("([a-z])([A-Z])", r"\1-\2", k): str(v) for k, v in result.items()}
    return Reply(200, b"", {"x-amz-request-id": request_id, **headers}, XML)


def render_xml_fault(code: str, message: str, status: int, request: Request, number: str) -> Reply:
    """An error, as both protocols have it."""
    inner = f"<Code>{code}</Code><Message>{escape(message)}</Message>"
    in_s3 = "/s3/" in request.headers.get("authorization", "")
    end = f"<RequestId>{number}</RequestId>"
    text = f"<Error>{inner}{end}</Error>"
    if not in_s3:
        text = f"<ErrorResponse><Error>{inner}</Error>{end}</ErrorResponse>"
    body = b"" if request.method == "HEAD" else text.encode()
    return Reply(status, body, {"x-amz-request-id": number, "x-amzn-RequestId": number}, XML)


def _xml(shape: Any, value: Any) -> str:
    if shape.type_name == "structure":
        parts = []
        for name, member in shape.members.items():
            if value.get(name) is not None:
                wire = member.serialization.get("name", name)
                parts.append(f"<{wire}>{_xml(member, value[name])}</{wire}>")
        return "".join(parts)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return escape(str(value))
