"""Verification of requests to webhooks, by the rules of Standard Webhooks 1.0."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, Iterable, Optional, Protocol, Sequence, Tuple, Union

from . import _wire
from ._wire import ZERO_TIME, named
from .errors import InvalidWebhookError
from .forgerun_types import ForgeRunEventName, ForgeRunWorkKind, ForgeRunState

__all__ = ["WEBHOOK_TOLERANCE", "ForgeRunWebhookEvent", "verify_webhook"]

WEBHOOK_TOLERANCE = timedelta(minutes=5)
"""How far the time of a signature may be from now, in either direction."""


@dataclass
class ForgeRunWebhookEvent:
    """The body of a request to a webhook or callback: one state change of a job. That of a callback
    of another contract, or of a webhook of operators, has a ``type`` and ``data`` in the place of
    what is about ForgeRun's jobs."""

    event_id: str = ""
    """The same in every try and every replay of a delivery, so that a receiver can ignore events
    it has seen. It is also the webhook-id header."""
    job_id: str = ""
    name: ForgeRunEventName = named("event_name", default=ForgeRunEventName(""))
    prev: ForgeRunState = named("prev_state", default=ForgeRunState(""))
    """Empty for the first event."""
    next: ForgeRunState = named("next_state", default=ForgeRunState(""))
    occurred_at: datetime = ZERO_TIME
    """When the state changed."""
    scenario: ForgeRunWorkKind = ForgeRunWorkKind("")
    reason: str = ""
    final: bool = False
    """Reason and final are as in :class:`ForgeRunEvent`."""
    type: str = ""
    """The type of the event, such as ``taskflow.job.completed``; empty for an event of a client of
    ForgeRun."""
    data: Any = None
    """What the event says about the job, a dict; ``None`` for an event without a type."""
    signed_at: datetime = named("", default=ZERO_TIME)
    """When this request was signed (webhook-timestamp), in whole seconds."""


@dataclass
class _Body(ForgeRunWebhookEvent):
    """A body as it is on the wire."""

    timestamp: Optional[datetime] = None
    """In the place of ``occurred_at``, with a type."""


class Headers(Protocol):
    """The headers of a request: a mapping, or what a framework has for them."""

    def items(self) -> Iterable[Tuple[str, str]]:
        """Return names and values."""


def verify_webhook(
    secrets: Union[str, Sequence[str]],
    headers: Headers,
    body: bytes,
    now: Optional[datetime] = None,
) -> ForgeRunWebhookEvent:
    """Check that a request was signed with one of the secrets within :data:`WEBHOOK_TOLERANCE` of
    now, and return its event.

    :param secrets: Those in use, ``whsec_…``: one, or a list of two while the receiver changes from
        one to the next.
    :param headers: The headers of the request, whose names are compared without case.
    :param body: The whole body of the request, byte for byte.
    :param now: The time to compare with; ``None`` is the clock's.
    :raises InvalidWebhookError: if the request is not genuine.
    :raises ValueError: when the body has a valid signature but is no event, or when a secret is
        malformed.
    """
    found: Dict[str, str] = {}
    for name, value in headers.items():
        found[name.lower()] = f"{found.get(name.lower(), '')} {value}".strip()
    id, stamp = found.get("webhook-id", ""), found.get("webhook-timestamp", "")
    if not id or not stamp.isascii() or not stamp.isdigit() or len(stamp) > 11:
        raise InvalidWebhookError("webhook-id or webhook-timestamp is missing or malformed")
    signed = datetime.fromtimestamp(int(stamp), timezone.utc)
    if abs((now or datetime.now(timezone.utc)) - signed) > WEBHOOK_TOLERANCE:
        raise InvalidWebhookError(f"signed at {signed.isoformat()}, which is too far from now")
    message = f"{id}.{stamp}.".encode("utf-8", "surrogatepass") + body
    used = [secrets] if isinstance(secrets, str) else secrets
    if not _signed_by_any(used, message, found.get("webhook-signature", "").split()):
        raise InvalidWebhookError("it has no valid signature")
    try:
        event = _wire.read(_Body, _wire.decode(body))
    except ValueError as error:
        raise ValueError(f"body of a webhook request: {error}") from None
    event.signed_at, event.event_id = signed, id
    if event.timestamp is not None:
        event.occurred_at = event.timestamp
    return event


def _signed_by_any(secrets: Sequence[str], message: bytes, signatures: Sequence[str]) -> bool:
    """Report whether one of the signatures was made with one of the secrets."""
    genuine = False
    for secret in secrets:
        text = secret[len("whsec_") :] if secret.startswith("whsec_") else secret
        try:
            key = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not key:
            raise ValueError('a webhook secret is not "whsec_" and base64')
        want = hmac.new(key, message, hashlib.sha256).digest()
        for signature in signatures:
            genuine = _is_signature(signature, want) or genuine
    return genuine


def _is_signature(signature: str, want: bytes) -> bool:
    """Report whether a signature of the header, such as ``v1,aGVsbG8=``, is the wanted one. It
    compares in constant time."""
    version, _, text = signature.partition(",")
    try:
        got = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return version == "v1" and hmac.compare_digest(got, want)
