"""ForgeRun: simulated jobs with schedules, reports and webhooks.

:meth:`ForgeRun.create_client` creates a client of ForgeRun, :meth:`ForgeRun.create_first_api_key`
its first API key, and :meth:`ForgeRun.with_api_key` uses that key::

    forge = client.forge_run()
    key = forge.create_first_api_key(forge.create_client())
    forge = forge.with_api_key(key.api_key)
    receipt = forge.submit(millrace.ForgeRunSpec("EXECUTE", kind="SUCCESS_FAST"))
    job = forge.wait(receipt.job_id)

The receiver of a webhook checks its requests with :func:`verify_webhook`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
)

from . import _wire
from ._context import Context
from ._follow import list_pages, watch
from ._http import Call, segment
from ._wire import encode, optional_time
from .errors import errors_with_key, refusing
from .forgerun_types import (
    FORGE_RUN_EVENTS,
    ForgeRunActionResult,
    ForgeRunDelivery,
    ForgeRunEventName,
    ForgeRunFilter,
    ForgeRunIssuedAPIKey,
    ForgeRunJob,
    ForgeRunAPIKey,
    ForgeRunReceipt,
    ForgeRunCreatedWebhook,
    ForgeRunDeliveryReplayFilter,
    ForgeRunDeliveryReplayResult,
    ForgeRunReport,
    ForgeRunSpec,
    ForgeRunWebhookTest,
    ForgeRunWebhook,
)

if TYPE_CHECKING:
    from .client import Client

__all__ = ["ForgeRun", "forge_run_events"]

T = TypeVar("T")


@dataclass
class _Nothing:
    """An answer of which nothing is read."""


@dataclass
class _ClientID:
    client_id: str


@dataclass
class _Replayed(ForgeRunDeliveryReplayResult):
    next_cursor: str = ""


def forge_run_events() -> List[ForgeRunEventName]:
    """Return all names of events, in the order of a job's life."""
    return [ForgeRunEventName(name) for name in FORGE_RUN_EVENTS]


class ForgeRun:
    """Version 1 of the ForgeRun contract, for one client of it, identified by its API key. Every
    error is an :class:`Error` whose code, when the server answered, begins with ``RFA_``. It may be
    used by several threads. Made by :meth:`Client.forge_run`.

    Calls that create something send an idempotency key, a random one when the caller passes none.
    So a repeat after a lost answer does nothing twice.
    """

    def __init__(self, client: Client, key: str = "") -> None:
        self._client = client
        self._key = key

    def with_api_key(self, api_key: str) -> ForgeRun:
        """Return the contract with another API key. It shares the connections of this one."""
        with refusing("forgerun with key"):
            _wire.check_header("API key", api_key)
        return ForgeRun(self._client, api_key)

    def submit(self, spec: ForgeRunSpec) -> ForgeRunReceipt:
        """Store a job. When it returns the job survives a crash of the server.

        :raises InvalidError: if the spec is wrong.
        :raises UnauthorizedError: if the key is missing or wrong.
        :raises ConflictError: with the code ``RFA_EXEC_IDEMPOTENCY_CONFLICT`` when a different job
            was submitted under the same key.
        :raises RetryableError: when the server's queue is full or this client exceeds a limit.

        Repeating under the same idempotency key returns the same job. It does that itself after
        lost answers. When it gives up, the error has the key.
        """
        op = "forgerun submit"
        key = spec.idempotency_key or secrets.token_urlsafe(20)
        request: Dict[str, Any] = {"type": spec.type, "idempotency_key": key}
        if spec.kind:
            request["work_kind"] = spec.kind
        if spec.callback:
            request["callback"] = spec.callback
        with refusing(op):
            if spec.execution_at is not None:
                request["execution_at"] = optional_time(spec.execution_at)
            body = encode(request, "spec")
        call = Call(op, "POST", "/v1/jobs", body=body, accept=(202,))
        with errors_with_key(key):
            receipt = self._call(call, ForgeRunReceipt)
        receipt.idempotency_key = key
        return receipt

    def get(self, job_id: str) -> ForgeRunJob:
        """Read a job of this client. Repeating is safe.

        :raises NotFoundError: if there is no such job.
        :raises UnauthorizedError: with the code ``RFA_AUTH_FORBIDDEN`` for a job of another client.
        """
        return self._get(self._client._context(), job_id)

    def _get(self, ctx: Context, job_id: str) -> ForgeRunJob:
        op = "forgerun get"
        call = Call(op, "GET", _job_path(op, job_id), read_only=True)
        return self._call(call, ForgeRunJob, ctx)

    def report(self, job_id: str) -> ForgeRunReport:
        """Read the report of a job that has finished. Repeating is safe.

        :raises NotFoundError: also for a job that has not ended.
        """
        op = "forgerun report"
        call = Call(op, "GET", _job_path(op, job_id) + "/report", read_only=True)
        return self._call(call, ForgeRunReport)

    def cancel(self, job_id: str) -> ForgeRunActionResult:
        """Cancel a job that has not ended and return its state. A job that ended in between with
        another outcome stays as it is. Repeating is safe.

        :raises NotFoundError: if there is no such job.
        """
        op = "forgerun cancel"
        return self._call(Call(op, "POST", _job_path(op, job_id) + "/cancel"), ForgeRunActionResult)

    def retry(self, job_id: str) -> ForgeRunActionResult:
        """Make a failed job run once more, after a delay that grows with each retry.

        :raises ConflictError: when the job has not failed or its retries are used up.
        :raises NotFoundError: if there is no such job.

        Repeating before the retried run has ended returns the job's state. A repeat after that run
        has failed too is another retry.
        """
        op = "forgerun retry"
        return self._call(Call(op, "POST", _job_path(op, job_id) + "/retry"), ForgeRunActionResult)

    def jobs(self, filter: Optional[ForgeRunFilter] = None) -> Iterator[ForgeRunJob]:
        """Iterate over the jobs of this client. With a state, a job that changes its state
        meanwhile may be missed."""
        filter = filter or ForgeRunFilter()
        query = {"state": filter.state}
        return self._pages("forgerun jobs", "/v1/jobs", ForgeRunJob, query, filter.page_size)

    def wait(self, job_id: str, timeout: Optional[float] = None) -> ForgeRunJob:
        """Poll a job until it has finished, and return it. It polls after growing pauses of up to
        two seconds, and continues while the server is unavailable or limits requests. A failed job
        has finished, even when it can be retried.

        :raises NotFoundError: if there is no such job.
        :raises DeadlineError: when the timeout in seconds has passed.
        """

        def poll(ctx: Context) -> Tuple[ForgeRunJob, bool]:
            job = self._get(ctx, job_id)
            return job, job.state.final

        return watch(self._client._http, "forgerun wait", timeout, poll)

    def create_client(self, idempotency_key: str = "") -> str:
        """Create a client of ForgeRun and return its id, a UUID. It sends no API key. The
        idempotency key should be random, because all callers of the server share one scope of keys;
        the server remembers it for 24 h. Repeating under the same key returns the same client."""
        op = "forgerun create client"
        call = Call(op, "POST", "/v1/clients", token="", accept=(201,))
        call.headers = _idempotency(op, idempotency_key)
        return self._call(call, _ClientID).client_id

    def create_first_api_key(self, client_id: str) -> ForgeRunIssuedAPIKey:
        """Create the first key of a client that never had one. It sends no API key.

        :raises UnauthorizedError: when the client has had a key, even if that was made by an
            earlier try of this call (:attr:`Error.uncertain`): the secret is lost with the answer
            then, and another client must be created.
        :raises NotFoundError: if there is no such client.
        """
        op = "forgerun create first API key"
        call = self._key_call(op, client_id, False, "")
        call.token = ""
        return self._call(call, ForgeRunIssuedAPIKey)

    def create_api_key(
        self, client_id: str, *, rotate: bool = False, idempotency_key: str = ""
    ) -> ForgeRunIssuedAPIKey:
        """Create a key of this client. While the client has an active key and ``rotate`` is not
        set, the metadata of that key is returned without a secret. ``rotate`` makes a new key and
        revokes the present one.

        :raises UnauthorizedError: if the key is missing or wrong.

        Repeating: with ``rotate``, a try that took effect has revoked the key that its repeat uses.
        The repeat fails with an :class:`UnauthorizedError` that is uncertain, the new secret is
        lost with the answer, and an operator must recover the client.
        """
        call = self._key_call("forgerun create API key", client_id, rotate, idempotency_key)
        return self._call(call, ForgeRunIssuedAPIKey)

    def _key_call(self, op: str, client_id: str, rotate: bool, key: str) -> Call:
        return Call(
            op,
            "POST",
            f"/v1/clients/{segment(op, 'client id', client_id)}/keys",
            body=encode({"rotate": bool(rotate)}),
            headers=_idempotency(op, key),
            accept=(201, 200),
        )

    def renew_api_key(self, client_id: str) -> ForgeRunIssuedAPIKey:
        """Replace the present key by a new one. The old key may have expired but not been revoked,
        and is refused from then on. Repeating is as with ``rotate``, see :meth:`create_api_key`.

        :raises UnauthorizedError: if the key is missing or wrong.
        :raises ConflictError: when there is nothing to renew.
        """
        op = "forgerun renew API key"
        path = f"/v1/clients/{segment(op, 'client id', client_id)}/keys/renew"
        call = Call(op, "POST", path, body=b"{}", headers=_idempotency(op, ""))
        return self._call(call, ForgeRunIssuedAPIKey)

    def revoke_api_key(self, client_id: str, key_id: str) -> None:
        """Revoke a key of this client: the next request with it is refused. A key may revoke
        itself, after which only an operator can help. Revoking a key again is no error.

        :raises NotFoundError: if there is no such key.
        :raises UnauthorizedError: also for a key of another client, and for a repeat after a lost
            answer when the key revoked itself.
        """
        op = "forgerun revoke API key"
        path = f"/v1/clients/{segment(op, 'client id', client_id)}/keys/revoke"
        self._call(Call(op, "POST", path, body=encode({"key_id": key_id})), _Nothing)

    def api_keys(self, client_id: str) -> Iterator[ForgeRunAPIKey]:
        """Iterate over the keys of this client, the revoked ones too while the server keeps
        them."""
        op = "forgerun API keys"
        path = f"/v1/clients/{segment(op, 'client id', client_id)}/keys"
        return self._pages(op, path, ForgeRunAPIKey, {}, 0)

    def create_webhook(
        self, url: str, events: Sequence[str], idempotency_key: str = ""
    ) -> ForgeRunCreatedWebhook:
        """Subscribe a URL to events of all jobs of this client. :func:`forge_run_events` lists the
        events there are.

        :raises InvalidError: if the URL or an event is wrong.
        :raises ConflictError: when the same URL and events are registered already.

        Repeating under the same key returns the same webhook without its secret.
        """
        op = "forgerun create webhook"
        with refusing(op):
            body = encode({"url": url, "events": list(events)}, "webhook")
        call = Call(op, "POST", "/v1/webhooks", body=body, accept=(201,))
        call.headers = _idempotency(op, idempotency_key)
        return self._call(call, ForgeRunCreatedWebhook)

    def webhooks(self) -> Iterator[ForgeRunWebhook]:
        """Iterate over the webhooks of this client."""
        return self._pages("forgerun webhooks", "/v1/webhooks", ForgeRunWebhook, {}, 0)

    def delete_webhook(self, webhook_id: str) -> None:
        """Delete a webhook. No delivery to it starts afterwards.

        :raises NotFoundError: which is uncertain on a repeat after a lost answer, because the
            earlier try may have deleted it.
        """
        self._webhook("forgerun delete webhook", "DELETE", _Nothing, webhook_id)

    def rotate_webhook_secret(self, webhook_id: str) -> str:
        """Make and return a new secret. For 24 h requests are signed with both secrets, so that the
        receiver has time to change. Repeating makes yet another secret.

        :raises NotFoundError: if there is no such webhook.
        """
        op = "forgerun rotate webhook secret"
        made = self._webhook(op, "POST", ForgeRunCreatedWebhook, webhook_id, "rotate-secret")
        return made.secret

    def enable_webhook(self, webhook_id: str) -> ForgeRunWebhook:
        """Resume the deliveries to a disabled webhook. Repeating is safe.

        :raises NotFoundError: if there is no such webhook.
        """
        op = "forgerun enable webhook"
        return self._webhook(op, "POST", ForgeRunWebhook, webhook_id, "enable")

    def test_webhook(self, webhook_id: str) -> ForgeRunWebhookTest:
        """Send an event named ``millrace.test`` to a webhook now, signed as every other, and return
        what came back. That the receiver fails is no error. A disabled webhook gets it too, and it
        decides nothing about the webhook. A repeat sends another event.

        :raises NotFoundError: if there is no such webhook.
        """
        op = "forgerun test webhook"
        return self._webhook(op, "POST", ForgeRunWebhookTest, webhook_id, "test")

    def deliveries(self, webhook_id: str, page_size: int = 0) -> Iterator[ForgeRunDelivery]:
        """Iterate over the deliveries of a webhook and ask for ``page_size`` of them at a time; 0
        leaves the size to the server."""
        op = "forgerun deliveries"
        path = f"/v1/webhooks/{segment(op, 'webhook id', webhook_id)}/deliveries"
        return self._pages(op, path, ForgeRunDelivery, {}, page_size)

    def replay_delivery(self, webhook_id: str, delivery_id: str) -> ForgeRunDelivery:
        """Deliver an event to a webhook once more, whatever the status of the delivery is.
        Repeating may deliver it yet again.

        :raises NotFoundError: if there is no such delivery.
        """
        op = "forgerun replay delivery"
        rest = ("deliveries", delivery_id, "replay")
        return self._webhook(op, "POST", ForgeRunDelivery, webhook_id, *rest)

    def replay_deliveries(
        self, webhook_id: str, filter: Optional[ForgeRunDeliveryReplayFilter] = None
    ) -> ForgeRunDeliveryReplayResult:
        """Make deliveries of a webhook once more, the oldest first, with as many requests as that
        needs. A delivery is replayed by it once at most, however often it is called; what fails
        again is a delivery of its own. Repeating is safe.

        :raises NotFoundError: if there is no such webhook.
        :raises ConflictError: while the webhook is disabled.
        """
        op = "forgerun replay deliveries"
        path = f"/v1/webhooks/{segment(op, 'webhook id', webhook_id)}/replay"
        filter = filter or ForgeRunDeliveryReplayFilter()
        with refusing(op):
            bounds = [optional_time(filter.from_time), optional_time(filter.to_time)]
        request = dict(zip(("from", "to", "state"), [*bounds, filter.status]))
        request = {name: value for name, value in request.items() if value}
        done = ForgeRunDeliveryReplayResult()
        while True:
            part = self._call(Call(op, "POST", path, body=encode(request)), _Replayed)
            done.replayed += part.replayed
            done.skipped += part.skipped
            if not part.next_cursor:
                return done
            request["cursor"] = part.next_cursor

    def _webhook(self, op: str, method: str, cls: Type[T], webhook_id: str, *rest: str) -> T:
        """Make a call about one webhook."""
        path = "/v1/webhooks"
        for member in (webhook_id, *rest):
            path += "/" + segment(op, "webhook or delivery id", member)
        return self._call(Call(op, method, path, accept=(200, 201, 202)), cls)

    def _call(self, call: Call, cls: Type[T], ctx: Optional[Context] = None) -> T:
        """Make a call whose answer is an object, with the API key."""
        return self._client._http.call_json(
            ctx or self._client._context(), self._with_key(call), cls
        )

    def _with_key(self, call: Call) -> Call:
        if self._key and call.token is None:
            call.token = self._key
        return call

    def _pages(
        self, op: str, path: str, cls: Type[T], query: Dict[str, Any], size: int
    ) -> Iterator[T]:
        return list_pages(
            self._client._http,
            self._client._context,
            lambda text: self._with_key(Call(op, "GET", path, query=text, read_only=True)),
            cls,
            query,
            size,
        )


def _job_path(op: str, job_id: str) -> str:
    return f"/v1/jobs/{segment(op, 'job id', job_id)}"


def _idempotency(op: str, key: str) -> Dict[str, str]:
    """Return a header with an idempotency key, a random one if it is empty."""
    if key:
        with refusing(op):
            _wire.check_header("idempotency key", key)
    return {"Idempotency-Key": key or secrets.token_urlsafe(20)}
