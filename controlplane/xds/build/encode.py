"""Protobuf framing: the few bytes that are put together by hand instead of by the library.

`envoy_data_plane` (betterproto2) takes about 0.2 ms to encode one endpoint, so whatever is large and
changes in small parts is encoded part by part, kept, and joined here. Joining is legitimate because
of two rules of the wire format: a message is the concatenation of its fields, and an embedded message
is a tag, a length and its bytes. Every joined message is tested to equal the library's own encoding.
"""

from __future__ import annotations

from betterproto2 import Message
from envoy_data_plane.google.protobuf import Any

_LENGTH_DELIMITED = 2
"""Wire type of strings, bytes and embedded messages (protobuf encoding guide)."""

_ANY_TYPE_URL = 1
_ANY_VALUE = 2


def varint(number: int) -> bytes:
    """Encode a number of at least 0 as a base-128 varint."""
    encoded = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def embed(number: int, body: bytes) -> bytes:
    """Encode field `number` holding `body`: a string, bytes, or an embedded message."""
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(len(body)) + body


def wrap(type_url: str, body: bytes) -> bytes:
    """Encode a ``google.protobuf.Any`` around an encoded message, which is what a resource is made of."""
    return embed(_ANY_TYPE_URL, type_url.encode()) + embed(_ANY_VALUE, body)


def pack(message: Message) -> Any:
    """Make the ``Any`` of a typed extension's configuration, to be part of another message."""
    return Any.pack(message)
