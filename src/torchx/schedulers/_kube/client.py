"""The calls of an API server that schedulers make: get, list, create, patch, delete."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torchx.errors import BackendUnavailable

from .answers import document
from .calls import (
    JSON_PATCH,
    MERGE_PATCH,
    Answer,
    Call,
    Kind,
    Object,
    Selection,
    Transport,
    call,
)
from .errors import (
    AnswerLost,
    ApiError,
    ConfigError,
    Conflict,
    Expired,
    NotFound,
    NotSent,
    ServerBusy,
)
from .retry import Patience, Retries

MARK = "torchx.pytorch.org/submission"
"""Annotation with a token that is new for each submission and identifies our own objects."""
PAGE = 500
"""Objects in one page of a list."""
FIELD_MANAGER = "torchx"


@dataclass(frozen=True)
class Listed:
    """All objects of a list, and the version from which a watch can continue."""

    items: list[Object]
    resource_version: str


class KubeClient:
    """Calls with limited retries; every error has one line for the user.

    A request that may have been executed is retried only if it is idempotent.

    Args:
        user: the name of the kubeconfig's user, for messages.
        pause: waits for that many seconds.
    """

    def __init__(
        self,
        transport: Transport,
        user: str = "",
        patience: Patience | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.transport = transport
        self.user = user
        self.patience = patience or Patience()
        self._pause = pause

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Returns one object; raises ``NotFound``."""
        return self._document(call("get", "GET", kind, namespace, name))

    def list_objects(self, selection: Selection) -> Listed:
        """Returns all objects of the selection, fetched page by page.

        If the server loses the position in a list, it is fetched again without pages.
        """
        try:
            return self._listed(selection, PAGE)
        except Expired:
            return self._listed(selection, 0)

    def _listed(self, selection: Selection, limit: int) -> Listed:
        items: list[Object] = []
        version = ""
        for page in self._pages(selection, limit):
            items += page.get("items") or []
            version = page["metadata"].get("resourceVersion", "")
        kind = selection.kind
        for item in items:  # lists of the core group omit it
            item.setdefault("kind", kind.name)
            item.setdefault("apiVersion", kind.api_version)
        return Listed(items, version)

    def _pages(self, selection: Selection, limit: int) -> Iterator[Object]:
        kind, namespace = selection.kind, selection.namespace
        query = selection.query()
        if limit:
            query["limit"] = str(limit)
        while True:
            page = self._document(call("list", "GET", kind, namespace, query=query))
            yield page
            following = page.get("metadata", {}).get("continue")
            if not following:
                return
            query["continue"] = following

    def create(self, kind: Kind, namespace: str, body: Object, *, strict: bool = True) -> Object:
        """Creates an object once, even if the response is lost.

        After a lost response, the object is looked up: if it has our ``MARK`` it was created; if it
        is missing it is sent again, and its name prevents duplicates.

        Args:
            strict: refuse fields that the server does not know, instead of dropping them.

        Raises:
            AlreadyExists: if another object has the name.
            ServerBusy, AnswerLost, NotSent: if it is not known to exist after all retries. Only for
            ``AnswerLost`` it may exist.
        """
        request = self._create_call(kind, namespace, body, strict=strict, dry_run=False)
        retries = Retries(self.patience, self._pause)
        unsure = False
        while True:
            try:
                return document(request, self._send(request), self.user)
            except (AnswerLost, NotSent, ServerBusy, Conflict) as err:
                turned_away = isinstance(err, (NotSent, Conflict)) or _too_many(err)
                unsure = unsure or not turned_away
                more = retries.again(err)
                if unsure and (found := self._ours_after(err, kind, namespace, body)):
                    return found
                if not more:
                    raise
            except ConfigError as err:  # there are no credentials, or none any more
                if unsure:
                    raise _unknown(err, kind, body) from None
                raise
            except ApiError:
                if unsure and (found := self._ours(kind, namespace, body)):
                    return found
                raise

    def _ours_after(
        self, err: Exception, kind: Kind, namespace: str, body: Object
    ) -> Object | None:
        try:
            return self._ours(kind, namespace, body)
        except (BackendUnavailable, ConfigError):
            raise _unknown(err, kind, body) from None

    def _ours(self, kind: Kind, namespace: str, body: Object) -> Object | None:
        """Returns the object of that name if it has the mark of ``body``."""
        try:
            found = self.get(kind, namespace, body["metadata"]["name"])
        except NotFound:
            return None
        mark = _mark(body)
        return found if mark and _mark(found) == mark else None

    def hurried(self, most_s: float) -> "KubeClient":
        """Returns the same client with a shorter limit for calls."""
        patience = Patience(timeout_s=most_s, pauses_s=(0.2,), longest_pause_s=1, total_s=most_s)
        return KubeClient(self.transport, self.user, patience, self._pause)

    def validate(self, kind: Kind, namespace: str, body: Object) -> Object:
        """Lets the server check an object, unknown fields included, without creating it.

        Raises:
            Rejected, Forbidden, AlreadyExists: as ``create`` would.
        """
        return self._document(self._create_call(kind, namespace, body, strict=True, dry_run=True))

    def _create_call(
        self, kind: Kind, namespace: str, body: Object, *, strict: bool, dry_run: bool
    ) -> Call:
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict" if strict else "Warn"}
        if dry_run:
            query["dryRun"] = "All"
        name = str(body["metadata"].get("name") or "")  # reviews have none
        return call(
            "create", "POST", kind, namespace, name, query=query, body=body, idempotent=dry_run
        )

    def patch(
        self, kind: Kind, namespace: str, name: str, changes: Object, subresource: str = ""
    ) -> Object:
        """Merges ``changes`` into an object; ``None`` removes a field."""
        return self._document(
            call(
                "patch",
                "PATCH",
                kind,
                namespace,
                name,
                subresource=subresource,
                query={"fieldManager": FIELD_MANAGER},
                body=changes,
                content_type=MERGE_PATCH,
            )
        )

    def patch_json(
        self, kind: Kind, namespace: str, name: str, operations: list[Mapping[str, object]]
    ) -> Object:
        """Applies operations of RFC 6902, which are not retried if the response is lost."""
        return self._document(
            call(
                "patch",
                "PATCH",
                kind,
                namespace,
                name,
                query={"fieldManager": FIELD_MANAGER},
                body=operations,
                content_type=JSON_PATCH,
                idempotent=False,
            )
        )

    def delete(
        self, kind: Kind, namespace: str, name: str, propagation: str = "Background"
    ) -> bool:
        """Deletes one object; returns ``False`` if it does not exist.

        Args:
            propagation: ``Background``, ``Foreground`` or ``Orphan``: what happens to the objects
                it owns.
        """
        query = {"propagationPolicy": propagation}
        try:
            self._document(call("delete", "DELETE", kind, namespace, name, query=query))
        except NotFound:
            return False
        return True

    def withdraw(self, kind: Kind, namespace: str, name: str) -> None:
        """Deletes an object that was being created, and that the server may still create."""
        for _ in range(_LATE_LOOKS):
            if self.delete(kind, namespace, name):
                return
            self._pause(_LATE_S)

    def delete_all(self, selection: Selection, propagation: str = "Background") -> None:
        """Deletes all objects of a selection, which must have a selector."""
        if not selection.query():
            raise ValueError("a selection without a selector is everything in the namespace")
        query = {**selection.query(), "propagationPolicy": propagation}
        kind, namespace = selection.kind, selection.namespace
        self._document(call("deletecollection", "DELETE", kind, namespace, query=query))

    def groups(self) -> dict[str, list[str]]:
        """Returns the API groups of the cluster and their versions, without the core group."""
        found = self._document(Call("get", "the API groups", "GET", "/apis"))
        return {
            group["name"]: [version["version"] for version in group.get("versions", ())]
            for group in found.get("groups", ())
        }

    def server_date(self) -> str:
        """The header ``Date`` of an answer, whatever that says; empty if it has none."""
        return self._send(_VERSION_CALL).headers.get("date", "")

    def server_version(self) -> tuple[int, int]:
        """Returns major and minor version of the server."""
        found = self._document(_VERSION_CALL)
        digits = ("".join(c for c in str(found.get(k, "")) if c.isdigit()) for k in _VERSION)
        major, minor = (int(text or 0) for text in digits)
        return major, minor

    def _document(self, request: Call) -> Object:
        """Returns the response to a call, with retries if allowed."""
        retries = Retries(self.patience, self._pause)
        while True:
            try:
                return document(request, self._send(request), self.user)
            except (NotSent, AnswerLost, ServerBusy, Conflict) as err:
                if not _repeatable(request, err) or not retries.again(err):
                    raise

    def _send(self, request: Call) -> Answer:
        return self.transport.send(request, self.patience.timeout_s)


_LATE_LOOKS, _LATE_S = 3, 0.5
"""Pauses of the lookups after an interrupted creation."""
_VERSION = ("major", "minor")
_VERSION_CALL = Call("get", "the server's version", "GET", "/version")


def _repeatable(request: Call, err: Exception) -> bool:
    if isinstance(err, NotSent) or _too_many(err):
        return True  # rejected before anything was done
    if isinstance(err, Conflict):
        # no version was given: the server, or the count of a quota, lost a race
        return request.content_type == MERGE_PATCH
    return request.idempotent


def _unknown(err: Exception, kind: Kind, body: Object) -> AnswerLost:
    name = body["metadata"]["name"]
    return AnswerLost(f"{err}; it is not known whether {kind.name} `{name}` was created")


def _too_many(err: Exception) -> bool:
    return isinstance(err, ServerBusy) and err.code == 429


def _mark(body: Object) -> str:
    annotations = body.get("metadata", {}).get("annotations") or {}
    return str(annotations.get(MARK) or "")
