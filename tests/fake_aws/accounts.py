"""Small services of the account: identity, roles, log-ins to registries of images."""

import base64
import time
from datetime import datetime, timezone
from typing import Any

from .protocol import AwsFault, Params

ACCOUNT = "123456789012"
_HOURS_S = 12 * 3600


class Sts:
    """The service ``sts``."""

    name = "sts"

    def __init__(self, services: dict[str, Any]) -> None:
        pass

    def GetCallerIdentity(self, params: Params) -> Params:
        return {
            "UserId": "AIDATESTER",
            "Account": ACCOUNT,
            "Arn": f"arn:aws:iam::{ACCOUNT}:user/tester",
        }


class Iam:
    """The service ``iam``. It has one role, ``Trainer``, below a path."""

    name = "iam"

    def __init__(self, services: dict[str, Any]) -> None:
        self.roles = {"Trainer": f"arn:aws:iam::{ACCOUNT}:role/service-role/Trainer"}

    def GetRole(self, params: Params) -> Params:
        name = params["RoleName"]
        if name not in self.roles:
            msg = f"The role with name {name} cannot be found."
            raise AwsFault("NoSuchEntity", msg, 404)
        return {
            "Role": {
                "Path": "/service-role/",
                "RoleName": name,
                "RoleId": "AROATRAINERTRAINER",
                "Arn": self.roles[name],
                "CreateDate": datetime(2026, 1, 1, tzinfo=timezone.utc),
            }
        }


class Ecr:
    """The service ``ecr``."""

    name = "ecr"

    def __init__(self, services: dict[str, Any]) -> None:
        self.password = "token-of-ecr"

    def GetAuthorizationToken(self, params: Params) -> Params:
        pair = base64.b64encode(f"AWS:{self.password}".encode()).decode()
        expires = datetime.fromtimestamp(time.time() + _HOURS_S, timezone.utc)
        endpoint = f"https://{ACCOUNT}.dkr.ecr.eu-west-1.amazonaws.com"
        data = {"authorizationToken": pair, "expiresAt": expires, "proxyEndpoint": endpoint}
        return {"authorizationData": [data]}
