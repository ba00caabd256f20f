"""Labels and annotations that identify the objects of an app. Pure."""

import re
from collections.abc import Iterable

from torchx.specs.api import AppDef
from torchx.version import __version__

LABEL_VERSION = "torchx.pytorch.org/version"
LABEL_APP_NAME = "torchx.pytorch.org/app-name"
LABEL_ROLE_INDEX = "torchx.pytorch.org/role-index"
LABEL_ROLE_NAME = "torchx.pytorch.org/role-name"
LABEL_REPLICA_ID = "torchx.pytorch.org/replica-id"
LABEL_KUBE_APP_NAME = "app.kubernetes.io/name"
LABEL_ORGANIZATION = "app.kubernetes.io/managed-by"
LABEL_UNIQUE_NAME = "app.kubernetes.io/instance"
LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
MANAGED_BY = "torchx.pytorch.org"
OURS = f"{LABEL_ORGANIZATION}={MANAGED_BY}"
"""Selects the objects of all apps."""
ANNOTATION_APP = "torchx.pytorch.org/app"
"""JSON of the app, on each of its main objects: everything a process needs to read it back."""
ANNOTATION_ENDED = "torchx.pytorch.org/ended"
"""On an object that we end: ``cancelled`` or ``failed``."""
LABEL_CHARS = 63
"""Length of a DNS label, and of the value of a label of Kubernetes."""

_NOT_IN_LABEL = re.compile("[^A-Za-z0-9._-]")
_ENDS = re.compile("^[^A-Za-z0-9]+|[^A-Za-z0-9]+$")


def label_value(text: str) -> str:
    """Converts a text to the value of a label.

    >>> label_value("a/b+c"), label_value("-x-")
    ('a.b.c', 'x')
    """
    return _ENDS.sub("", _ENDS.sub("", _NOT_IN_LABEL.sub(".", text))[:LABEL_CHARS])


def dns_label(text: str) -> str:
    """Converts a text to lower-case letters, digits and inner dashes; may be empty or too long."""
    return re.sub("-{2,}", "-", re.sub("[^a-z0-9]", "-", text.lower())).strip("-")


def container_name(role: str) -> str:
    """Returns the name of the container of a role's program.

    >>> container_name("My_Role")
    'my-role'
    """
    return dns_label(role)[:LABEL_CHARS].strip("-") or "main"


def of_app(name: str) -> str:
    """Returns the label selector for one app."""
    return f"{OURS},{LABEL_UNIQUE_NAME}={name}"


def of_apps(names: Iterable[str]) -> str:
    """Returns the label selector for several apps."""
    return f"{OURS},{LABEL_UNIQUE_NAME} in ({','.join(names)})"


def app_labels(app: AppDef, name: str) -> dict[str, str]:
    """Returns the labels of every object of an app."""
    return {
        LABEL_VERSION: label_value(__version__),
        LABEL_APP_NAME: label_value(app.name),
        LABEL_KUBE_APP_NAME: label_value(app.name),
        LABEL_ORGANIZATION: MANAGED_BY,
        LABEL_UNIQUE_NAME: name,
    }


def role_labels(app: AppDef, index: int, name: str) -> dict[str, str]:
    """Returns the labels of a role's objects and pods."""
    return {
        **app_labels(app, name),
        LABEL_ROLE_INDEX: str(index),
        LABEL_ROLE_NAME: label_value(app.roles[index].name),
    }
