"""How values are written to and read from the wire."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import typing
import urllib.parse
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Type, TypeVar

T = TypeVar("T")

ZERO_TIME = datetime.min.replace(tzinfo=timezone.utc)
"""A time that the server has not set."""


class Word(str):
    """A text of a set that later servers may extend, such as a status. It equals a plain string
    of the same text."""

    __slots__ = ()


def words(cls: Type[Word], *texts: str) -> None:
    """Give a class of words a member for each text, named by it in capitals."""
    for text in texts:
        setattr(cls, text.upper(), cls(text))


class RawJSON:
    """JSON that is ready to be sent, byte for byte, in the place of a value.

    A value is encoded by :func:`json.dumps`. Use this for text that must not change on the way,
    such as numbers with more digits than a float keeps::

        RelaySpec("mail", "42", timeout=30, payload=RawJSON('{"amount": 1.10}'))
    """

    __slots__ = ("text",)

    def __init__(self, text: typing.Union[str, bytes]) -> None:
        self.text = text.encode("utf-8") if isinstance(text, str) else bytes(text)

    def __repr__(self) -> str:
        return f"RawJSON({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RawJSON) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


class Unset:
    """The class of :data:`UNSET`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()
"""Stands for a value that is not given, where ``None`` is a value."""


def named(wire: str, **options: Any) -> Any:
    """Return a field of a dataclass that has another name on the wire."""
    return dataclasses.field(metadata={"wire": wire}, **options)


def encode(value: Any, what: str = "value") -> bytes:
    """Encode a value as JSON.

    :raises ValueError: if it cannot be encoded, or is :class:`RawJSON` that is no JSON.
    """
    if isinstance(value, RawJSON):
        try:
            json.loads(value.text, parse_int=_integer)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{what} is not JSON: {error}") from None
        return value.text
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{what} is not JSON: {error}") from None
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair: JSON has it as an escape only
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def object_of(members: Iterable[Tuple[str, bytes]]) -> bytes:
    """Encode an object whose values are JSON already."""
    return b"{" + b",".join(encode(name) + b":" + value for name, value in members) + b"}"


def array_of(items: Iterable[bytes]) -> bytes:
    """Encode an array whose items are JSON already."""
    return b"[" + b",".join(items) + b"]"


def decode(body: typing.Union[str, bytes]) -> Any:
    """Decode JSON.

    :raises ValueError: if it is none.
    """
    try:
        return json.loads(body, parse_int=_integer)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


_MAX_DIGITS = 4000


def _integer(digits: str) -> Any:
    """Read a number of any length: Python refuses to make an int of very many digits."""
    return int(digits) if len(digits) <= _MAX_DIGITS else Decimal(digits)


def check_name(what: str, name: str) -> None:
    """Refuse a name that could not reach the server as it is.

    :raises ValueError: if it is no text, empty, or has half of a surrogate pair.
    """
    if not isinstance(name, str):
        raise ValueError(f"{what} {name!r} is not a text")
    if name == "":
        raise ValueError(f"{what} is empty")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{what} {name!r} is not UTF-8") from None


def check_header(what: str, value: str) -> None:
    """Refuse a value that a header would change or cannot hold.

    :raises ValueError: if it begins or ends with a space, or has control characters.
    """
    check_name(what, value)
    if value.strip() != value or any(c < " " or c == "\x7f" for c in value):
        raise ValueError(f"{what} {value!r} cannot be sent in a header")


def escape(segment: str) -> str:
    """Percent-encode one segment of a path, so that it can be any text. The dots of "." and ".."
    are encoded too, which proxies would resolve as relative segments."""
    if segment in (".", ".."):
        return segment.replace(".", "%2E")
    return urllib.parse.quote(segment, safe="")


def query_of(members: Mapping[str, Any]) -> str:
    """Encode a query of the members that are not empty."""
    return urllib.parse.urlencode(
        {k: _query_value(v) for k, v in members.items() if v is not None and v != "" and v != 0}
    )


def _query_value(value: Any) -> str:
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(str(v) for v in value)
    return str(value)


def whole_seconds(seconds: float) -> int:
    """Round away from zero: a lease is never shorter than asked for, and a negative duration
    stays negative, for the server to refuse.

    :raises ValueError: if it is no finite number.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise ValueError(f"{seconds!r} is not a number of seconds")
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds} seconds cannot be sent")
    exact = round(seconds, 6)
    return math.ceil(exact) if exact > 0 else math.floor(exact)


def format_time(at: datetime) -> str:
    """Write a time as RFC 3339 in UTC.

    :raises ValueError: if it has no time zone.
    """
    if not isinstance(at, datetime):
        raise ValueError(f"{at!r} is not a datetime")
    if at.tzinfo is None:
        raise ValueError(f"{at!r} has no time zone; use datetime.now(timezone.utc)")
    return at.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))"
)


def parse_time(text: str) -> datetime:
    """Read a time of RFC 3339, to the microsecond, in UTC.

    :raises ValueError: if it is none.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a time")
    year, month, day, hour, minute, second = (int(n) for n in found.groups()[:6])
    micros = int((found[7] or "0")[:6].ljust(6, "0"))
    at = datetime(year, month, day, hour, minute, second, micros, timezone.utc)
    if found[8]:
        offset = timedelta(hours=int(found[9]), minutes=int(found[10]))
        at = at - offset if found[8] == "+" else at + offset
    return at


def read(cls: Type[T], value: Any) -> T:
    """Make a dataclass of an object of an answer. Members that it does not know are ignored;
    members that are missing or null have the default of their field.

    :raises ValueError: if a member is of another type, or one without a default is missing.
    """
    return typing.cast(T, _reader(cls)(value))


def read_list(cls: Type[T], value: Any) -> List[T]:
    """Make dataclasses of an array of an answer, see :func:`read`."""
    return [read(cls, item) for item in _array(value)]


Reader = Callable[[Any], Any]
_readers: Dict[Any, Reader] = {}


def _reader(hint: Any) -> Reader:
    found = _readers.get(hint)
    if found is None:
        found = _readers[hint] = _make_reader(hint)
    return found


def _make_reader(hint: Any) -> Reader:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda value: value
    if origin is typing.Union:  # Optional, as answers have no other union
        return _reader(next(arg for arg in args if arg is not type(None)))
    if origin is list:
        item = _reader(args[0])
        return lambda value: [item(v) for v in _array(value)]
    if origin is dict:
        member = _reader(args[1])
        return lambda value: {k: member(v) for k, v in _object(value).items()}
    if dataclasses.is_dataclass(hint):
        return _dataclass_reader(hint)
    if hint is datetime:
        return lambda value: parse_time(_of_type(str, value))
    if hint is float:
        return lambda value: float(_of_type((int, float), value))
    if isinstance(hint, type) and issubclass(hint, Word):
        return lambda value: hint(_of_type(str, value))
    return lambda value: _of_type(hint, value)


def _dataclass_reader(cls: Any) -> Reader:
    hints = typing.get_type_hints(cls)
    plan = [
        (f.name, f.metadata["wire"] if "wire" in f.metadata else f.name, _reader(hints[f.name]))
        for f in dataclasses.fields(cls)
        if f.metadata.get("wire", f.name)
    ]

    def make(value: Any) -> Any:
        members = _object(value)
        fields: Dict[str, Any] = {}
        for name, wire, member in plan:
            found = members.get(wire)
            if found is None:
                if wire in members and hints[name] is Any:
                    fields[name] = None
                continue
            try:
                fields[name] = member(found)
            except ValueError as error:
                raise ValueError(f"{wire}: {error}") from None
        try:
            return cls(**fields)
        except TypeError:
            raise ValueError(f"a member of {cls.__name__} is missing") from None

    return make


def _of_type(cls: Any, value: Any) -> Any:
    if not isinstance(value, cls) or (isinstance(value, bool) and cls is not bool):
        raise ValueError(f"{value!r:.60} is of another type")
    return value


def _array(value: Any) -> List[Any]:
    return typing.cast(List[Any], _of_type(list, value))


def _object(value: Any) -> Dict[str, Any]:
    return typing.cast(Dict[str, Any], _of_type(dict, value))


def optional_time(at: Optional[datetime]) -> Optional[str]:
    """Write a time that may be missing."""
    return None if at is None else format_time(at)
