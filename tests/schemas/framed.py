"""Records as serializers of a registry write them, without a serializer: Avro's values one after the other."""

from __future__ import annotations


def framed(number: int, body: bytes) -> bytes:
    """The body behind the header with the schema id."""
    return b"\0" + number.to_bytes(4, "big") + body


def avro(*values: int | str | bytes) -> bytes:
    """Whole numbers, texts and bytes in Avro's binary form."""
    return b"".join(_number(each) if isinstance(each, int) else _text(each) for each in values)


def _number(value: int) -> bytes:
    left, found = (value << 1) ^ (value >> 63), bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def _text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _number(len(data)) + data
