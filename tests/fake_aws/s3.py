"""S3: buckets and objects, as far as sending the source of a job needs them."""

import hashlib
from typing import Any

from .protocol import AwsFault, Params


class S3:
    """The service ``s3``."""

    name = "s3"

    def __init__(self, services: dict[str, Any]) -> None:
        self.buckets: dict[str, dict[str, bytes]] = {"results": {}}

    def fetch(self, uri: str) -> bytes:
        """What is at ``s3://bucket/key``."""
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        return self.buckets[bucket][key]

    def admin_keys(self, _: Params) -> dict[str, list[str]]:
        """The keys of all objects, by bucket."""
        return {bucket: sorted(objects) for bucket, objects in self.buckets.items()}

    # -- operations -------------------------------------------------------------------------

    def HeadBucket(self, params: Params) -> Params:
        self._bucket(params)
        return {}

    def CreateBucket(self, params: Params) -> Params:
        where = params.get("CreateBucketConfiguration", {}).get("LocationConstraint")
        if where != "eu-west-1":
            msg = "The unspecified location constraint is incompatible for the region"
            raise AwsFault("IllegalLocationConstraintException", msg)
        self.buckets.setdefault(params["Bucket"], {})
        return {"Location": f"/{params['Bucket']}"}

    def HeadObject(self, params: Params) -> Params:
        objects = self._bucket(params)
        if params["Key"] not in objects:
            raise AwsFault("NoSuchKey", "The specified key does not exist.", 404)
        return {"ETag": _etag(objects[params["Key"]])}

    def PutObject(self, params: Params) -> Params:
        self._bucket(params)[params["Key"]] = params["Body"]
        return {"ETag": _etag(params["Body"])}

    def _bucket(self, params: Params) -> dict[str, bytes]:
        if params["Bucket"] not in self.buckets:
            raise AwsFault("NoSuchBucket", "The specified bucket does not exist", 404)
        return self.buckets[params["Bucket"]]


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
