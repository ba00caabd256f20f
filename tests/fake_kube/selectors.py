"""Label and field selectors."""

import re
from collections.abc import Callable
from typing import Any

from .statuses import bad_request

Object = dict[str, Any]
Predicate = Callable[[Object], bool]

_SET = re.compile(r"^(?P<key>[^\s!=]+)\s+(?P<op>in|notin)\s+\((?P<values>[^)]*)\)$")


def matcher(labels: str, fields: str) -> Predicate:
    """Whether an object has the labels and fields."""
    tests = [_label_test(part) for part in _split(labels)]
    tests += [_field_test(part) for part in _split(fields)]
    if not tests:
        return lambda _: True
    return lambda obj: all(test(obj) for test in tests)


def _split(selector: str) -> list[str]:
    """Splits at commas outside of parentheses."""
    return [part.strip() for part in re.split(r",(?![^()]*\))", selector) if part.strip()]


def _label_test(part: str) -> Predicate:
    if found := _SET.match(part):
        key, values = found["key"], {value.strip() for value in found["values"].split(",")}
        if found["op"] == "in":
            return lambda obj: _labels(obj).get(key) in values
        return lambda obj: _labels(obj).get(key) not in values
    for operator, wanted in (("!=", False), ("==", True), ("=", True)):
        key, found_operator, value = part.partition(operator)
        if found_operator:
            key, value = key.strip(), value.strip()
            return lambda obj: (_labels(obj).get(key) == value) is wanted
    if part.startswith("!"):
        return lambda obj: part[1:].strip() not in _labels(obj)
    if " " in part:
        raise bad_request(f"unable to parse requirement: {part}")
    return lambda obj: part in _labels(obj)


def _labels(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def _field_test(part: str) -> Predicate:
    wanted = "!=" not in part
    key, _, value = re.sub(r"[!=]=?", "=", part, count=1).partition("=")
    steps = key.split(".")

    def test(obj: Object) -> bool:
        found: Any = obj
        for step in steps:
            found = found.get(step) if isinstance(found, dict) else None
        return (str(found if found is not None else "") == value) is wanted

    return test
