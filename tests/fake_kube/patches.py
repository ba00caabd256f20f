"""The three kinds of patches."""

import copy
from typing import Any

from .statuses import bad_request

_MERGE_KEYS = {"containers": "name", "env": "name", "conditions": "type", "volumes": "name"}


def apply_patch(content_type: str, obj: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The object with the patch applied; neither argument is changed."""
    obj = copy.deepcopy(obj)
    if content_type in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
        result: dict[str, Any] = merged(obj, patch, "strategic" in content_type)
        return result
    if content_type == "application/json-patch+json":
        for operation in patch:
            obj = _operated(obj, operation)
        return obj
    raise bad_request(f"the body of the request was in an unknown format: {content_type}")


def merged(target: Any, patch: Any, strategic: bool = False) -> Any:
    """RFC 7386; with ``strategic``, lists of named things are merged by name."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif strategic and isinstance(value, list) and key in _MERGE_KEYS:
            result[key] = _merged_list(result.get(key) or [], value, _MERGE_KEYS[key])
        else:
            result[key] = merged(result.get(key), value, strategic)
    return result


def _merged_list(target: list[Any], patch: list[Any], key: str) -> list[Any]:
    result = list(target)
    for item in patch:
        at = next((i for i, old in enumerate(result) if old.get(key) == item.get(key)), None)
        if at is None:
            result.append(item)
        else:
            result[at] = merged(result[at], item, strategic=True)
    return result


def _operated(obj: Any, operation: dict[str, Any]) -> Any:
    steps = [s.replace("~1", "/").replace("~0", "~") for s in operation["path"].split("/")[1:]]
    *parents, last = steps
    holder: Any = obj
    try:
        for step in parents:
            holder = holder[int(step)] if isinstance(holder, list) else holder[step]
        _change(holder, last, operation)
    except (KeyError, IndexError, TypeError, ValueError):
        raise bad_request(f"the server rejected our request: {operation}") from None
    return obj


def _change(holder: Any, last: str, operation: dict[str, Any]) -> None:
    verb, value = operation["op"], operation.get("value")
    if isinstance(holder, list):
        at = len(holder) if last == "-" else int(last)
        if verb == "add":
            holder.insert(at, value)
        elif verb == "remove":
            del holder[at]
        elif verb == "test" and holder[at] != value:
            raise ValueError
        elif verb == "replace":
            holder[at] = value
    elif verb == "test":
        if holder.get(last) != value:
            raise ValueError
    elif verb == "remove":
        del holder[last]
    elif verb == "replace" and last not in holder:
        raise KeyError(last)
    else:
        holder[last] = value
