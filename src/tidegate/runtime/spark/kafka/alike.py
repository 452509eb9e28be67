"""JSON objects that are written alike: one producer writes the same names in the same order, with the same white space.

Nobody needs to parse such objects. The bytes around the values are the same in all of them, and the quotes say where
they begin and end:

    {"user":"A","amount":5}        around the values: {"user":"   ","amount":   }
    {"user":"B","amount":17}       values: A and 5, B and 17

Other objects are left to the parser (`plain`): those that differ around the values, those with a backslash or a control
character, and those with a value that is not surely of its field's type.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import Flags, Ints, flags

READ_AT_ONCE = 8 << 20
"""Most bytes of objects whose quotes are looked for at once."""

LONGEST_SCALAR = 64
"""Most bytes of a number, or of null, true or false."""

MOST_FIELDS = 100
"""Of objects with more fields there are few in a batch, and each field is a step of its own here."""

SAMPLE = 5
"""Objects whose forms are compared to choose one."""

_QUOTE, _BACKSLASH, _SPACE = 0x22, 0x5C, 0x20
_WORD = 8

_START = re.compile(r"\{[ \t]*")
_NAME = re.compile(r'"([^"\\]*)"[ \t]*:[ \t]*')
_TEXT = re.compile(r'"([^"\\]*)"')
_SCALAR = re.compile(r'([^]["\\{}, \t]+)')
_NEXT, _END = re.compile(r"[ \t]*,[ \t]*"), re.compile(r"[ \t]*\}\Z")


@dataclass(frozen=True)
class Field:
    """A field of the objects.

    quoted   whether its values are in quotes; other values are numbers, true, false or null
    pattern  what surely fits a value that is not in quotes
    type     the type of its values without quotes
    """

    quoted: bool
    pattern: str
    type: pa.DataType


@dataclass(frozen=True)
class Form:
    """How an object is written.

    names   the fields, in their order
    quoted  whether the value of each is in quotes
    around  the bytes before the first value, between the values, and behind the last; quotes are in them
    """

    names: tuple[str, ...]
    quoted: tuple[bool, ...]
    around: tuple[bytes, ...]

    @classmethod
    def of(cls, text: str) -> Form | None:
        """The form of an object; None if it has no values, too many, nested ones, escapes, or a field twice."""
        names: list[str] = []
        quoted: list[bool] = []
        around: list[str] = []
        here, found = 0, _START.match(text)
        while found:
            name = _NAME.match(text, found.end())
            value = name and (_TEXT.match(text, name.end()) or _SCALAR.match(text, name.end()))
            if not name or not value or len(names) == MOST_FIELDS:
                return None
            names.append(name[1])
            quoted.append(value.re is _TEXT)
            around.append(text[here : value.start(1)])
            here = value.end(1)
            found = _NEXT.match(text, value.end())
            if not found and not _END.match(text, value.end()):
                return None
        around.append(text[here:])
        if not names or len(set(names)) < len(names):
            return None
        return cls(tuple(names), tuple(quoted), tuple(each.encode() for each in around))

    def fits(self, fields: Mapping[str, Field]) -> bool:
        """Whether each field that is one of `fields` is in quotes if its values must be."""
        quoted = dict(zip(self.names, self.quoted, strict=True))
        return all(quoted[name] == field.quoted for name, field in fields.items() if name in quoted)


@dataclass(frozen=True)
class Alike:
    """Reads objects that are written alike.

    fields   the fields to read
    others   the pattern of values without quotes in fields that are not read
    longest  most bytes of an object
    """

    fields: Mapping[str, Field]
    others: str
    longest: int

    def __call__(self, texts: pa.Array) -> tuple[Flags, dict[str, pa.ChunkedArray]] | None:
        """A mask of the objects that are written alike, and their values by field: text as it is, others typed.

        None if they are less than half of `texts`, which are strings without a null.
        """
        masks: list[Flags] = []
        found: list[dict[str, pa.Array]] = []
        for part in _parts(texts):
            form = self._form(part)
            mask, values = (np.zeros(len(part), bool), {}) if form is None else self._of_part(part, form)
            masks.append(mask)
            found += [values] if mask.any() else []
        alike = np.concatenate(masks) if masks else np.zeros(0, bool)
        if not found or 2 * int(alike.sum()) < len(texts):
            return None
        return alike, {name: pa.chunked_array([values[name] for values in found]) for name in self.fields}

    def _form(self, texts: pa.Array) -> Form | None:
        """The form of most of some objects that are spread over all; None if these have no form."""
        some = np.linspace(0, len(texts) - 1, SAMPLE).astype(int)
        forms = Counter(form for at in some if (form := Form.of(texts[int(at)].as_py())) and form.fits(self.fields))
        return max(forms, key=forms.__getitem__, default=None)

    def _of_part(self, texts: pa.Array, form: Form) -> tuple[Flags, dict[str, pa.Array]]:
        text = _Text.of(texts, form)
        spans = _spans(text, form, self.longest)
        for place, name in enumerate(form.names):
            if not form.quoted[place]:
                spans.keep(self._sound(name, spans.values(place)))
        values = {name: self._values(form, spans, name, field) for name, field in self.fields.items()}
        return spans.alike, values

    def _sound(self, name: str, scalars: pa.Array) -> Flags:
        field = self.fields.get(name)
        whole = _all_digits(scalars, field.type) if field is not None and pa.types.is_integer(field.type) else None
        if whole is not None:
            return whole
        pattern = self.others if field is None else field.pattern
        return flags(pc.match_substring_regex(scalars, rf"\A(?:null|{pattern})\z"))

    def _values(self, form: Form, spans: _Spans, name: str, field: Field) -> pa.Array:
        if name not in form.names:
            return pa.nulls(len(spans), field.type)
        values = spans.values(form.names.index(name))
        if field.quoted:
            return values
        null = pc.equal(values, "null")
        values = pc.if_else(null, None, values) if pc.any(null).as_py() else values
        return values.cast(field.type)


@dataclass(frozen=True)
class _Text:
    """The bytes of objects, as numbers and as words of eight bytes from each byte on; where objects begin and end."""

    data: np.ndarray[tuple[int], np.dtype[np.uint8]]
    words: np.ndarray[tuple[int], np.dtype[np.uint64]]
    bounds: Ints

    @classmethod
    def of(cls, texts: pa.Array, form: Form) -> _Text:
        bounds = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4)
        size = int(bounds[-1] - bounds[0])
        padded = np.zeros(size + max(map(len, form.around)) + _WORD, np.uint8)
        padded[:size] = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]]
        words = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded, strides=(1,))
        return cls(padded[:size], words, bounds.astype(np.int64) - bounds[0])

    def lines_of(self, at: Ints) -> Ints:
        """The number of the object in which each place lies."""
        return np.searchsorted(self.bounds, at, side="right") - 1

    def equal(self, at: Ints, text: bytes) -> Flags:
        """Whether the bytes from each place on are those of `text`."""
        same = np.ones(len(at), bool)
        for first in range(0, len(text), _WORD):
            part = text[first : first + _WORD]
            wanted, mask = (np.uint64(int.from_bytes(each, "little")) for each in (part, b"\xff" * len(part)))
            same &= (self.words[at + first] & mask) == wanted
        return same


class _Spans:
    """The places of the values of objects: `alike`, a mask of the objects, and the bounds of each value in them."""

    def __init__(self, text: _Text, alike: Flags, bounds: list[tuple[Ints, Ints]]) -> None:
        self.alike, self._text, self._bounds = alike, text, bounds

    def __len__(self) -> int:
        return len(self._bounds[0][0])

    def keep(self, which: Flags) -> None:
        """Go on with some of the objects."""
        if which.all():
            return
        self.alike[self.alike] = which
        self._bounds = [(begin[which], end[which]) for begin, end in self._bounds]

    def values(self, place: int) -> pa.Array:
        """The texts of a value, by its place in the form."""
        begin, end = self._bounds[place]
        between = np.empty(2 * len(begin) + 1, np.int32)
        between[0:-1:2], between[1::2], between[-1] = begin, end, len(self._text.data)
        # Every other one of these texts is the value of an object; between two of them is the rest.
        texts = pa.StringArray.from_buffers(2 * len(begin), pa.py_buffer(between), pa.py_buffer(self._text.data))
        return texts.take(pa.array(np.arange(0, 2 * len(begin), 2)))


def _spans(text: _Text, form: Form, longest: int) -> _Spans:
    """The values of the objects whose bytes around them are those of the form."""
    alike, quotes = _with_as_many_quotes(text, form, longest)
    begins, ends = text.bounds[:-1][alike], text.bounds[1:][alike]
    same, seen, bounds = np.ones(len(begins), bool), 0, []
    end = begins
    for place, around in enumerate(form.around):
        last = place == len(form.names)
        if place == 0:
            begin = begins
        elif form.quoted[place - 1]:
            begin = quotes[:, seen]
        else:
            begin = ends - len(around) if last else quotes[:, seen] - around.index(b'"')
        if place:
            size = begin - end
            same &= size >= 0 if form.quoted[place - 1] else (size > 0) & (size <= LONGEST_SCALAR)
            bounds.append((end, begin))
        same &= text.equal(begin, around)
        end, seen = begin + len(around), seen + around.count(b'"')
    spans = _Spans(text, alike, bounds)
    spans.keep(same & (end == ends))
    return spans


def _with_as_many_quotes(text: _Text, form: Form, longest: int) -> tuple[Flags, Any]:
    """A mask of the objects that may be of the form, and the places of the quotes of each."""
    per_object = sum(around.count(b'"') for around in form.around)
    size = np.diff(text.bounds)
    alike = size <= longest
    odd = (text.data < _SPACE) | (text.data == _BACKSLASH)
    if odd.any():
        alike[text.lines_of(np.flatnonzero(odd))] = False
    quotes = np.flatnonzero(text.data == _QUOTE)
    if len(quotes) == per_object * len(size):
        of_each = quotes.reshape(-1, per_object)
        if (of_each[:, 0] >= text.bounds[:-1]).all() and (of_each[:, -1] < text.bounds[1:]).all():
            return alike, of_each if alike.all() else of_each[alike]
    counts = np.diff(np.searchsorted(quotes, text.bounds))
    alike &= counts == per_object
    return alike, quotes[np.repeat(alike, counts)].reshape(-1, per_object)


def _all_digits(scalars: pa.Array, kind: pa.DataType) -> Flags | None:
    """A mask of the plain numbers that surely fit an integer type; None if they have other bytes than digits."""
    starts = np.frombuffer(scalars.buffers()[1], np.int32, len(scalars) + 1, scalars.offset * 4)
    data = np.frombuffer(scalars.buffers()[2] or b"", np.uint8)[starts[0] : starts[-1]]
    if ((data - ord("0")) > 9).any():
        return None
    size = np.diff(starts)
    fitting = size < len(str(2 ** (kind.bit_width - 1) - 1))
    fitting &= (size == 1) | (data[starts[:-1] - starts[0]] != ord("0"))
    return fitting


def _parts(texts: pa.Array) -> Iterator[pa.Array]:
    """Slices of about READ_AT_ONCE bytes."""
    count = max(1, -(-texts.nbytes // READ_AT_ONCE))
    rows = max(1, -(-len(texts) // count))
    for first in range(0, len(texts), rows):
        yield texts.slice(first, rows)
