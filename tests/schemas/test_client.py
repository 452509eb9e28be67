"""The client asks the registry once for each schema, asks again if it is busy, and never shows a password."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("authlib", reason="pip install 'tidegate[registry]'")

from schemas.framed import avro, framed
from schemas.loopback import Registry
from tidegate.errors import DefinitionError, InputError, TidegateError
from tidegate.runtime.spark.schemas import avro as avro_schemas
from tidegate.runtime.spark.schemas import registry as client
from tidegate.runtime.spark.schemas.decoding import AvroForm, Decoder

QUICK = {"retries.wait.ms": 1, "retries.max.wait.ms": 2}
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "x", "type": "long"}]}


@pytest.fixture
def running() -> Iterator[Registry]:
    with Registry() as made:
        yield made


def decoder(registry: Registry, schema: Any = ORDER) -> Decoder:
    form = AvroForm(avro_schemas.parse(json.dumps(schema)), "value")
    return Decoder(client.registry(registry.url, QUICK), form, "value")


def test_each_schema_is_asked_for_once(running: Registry) -> None:
    one, two = (running.register("o-value", {**ORDER, "doc": doc}) for doc in ("one", "two"))
    read = decoder(running)
    data = pa.array([framed(one, avro(1)), framed(two, avro(2)), framed(one, avro(3)), None])
    for _ in range(3):
        found = read(data)
        assert found.rows.to_pylist() == [{"x": 1}, {"x": 2}, {"x": 3}, None]
        assert found.reasons.to_pylist() == [None] * 4
        assert found.numbers.to_pylist() == [one, two, one, None]
    assert running.asked == [f"/schemas/ids/{one}", f"/schemas/ids/{two}"]


def test_an_unknown_schema_is_asked_for_in_each_batch(running: Registry) -> None:
    read = decoder(running)
    data = pa.array([framed(1, avro(1))])
    assert read(data).reasons.to_pylist() == ["the value has schema 1, which the registry does not have"]
    running.register("o-value", ORDER)
    assert read(data).rows.to_pylist() == [{"x": 1}]


def test_a_busy_registry_is_asked_again(running: Registry) -> None:
    one = running.register("o-value", ORDER)
    running.failing = 3
    assert decoder(running)(pa.array([framed(one, avro(5))])).rows.to_pylist() == [{"x": 5}]
    assert len(running.asked) == 4
    running.failing = 100
    with pytest.raises(InputError, match=r"does not say what schema 2 is: 503, not now.*no record is lost"):
        decoder(running)(pa.array([framed(2, avro(5))]))


@pytest.mark.parametrize(
    "proxy",
    [(404, b"<html>404 Not Found</html>"), (404, b'{"status": 404, "error": "Not Found"}'), (200, b"<html></html>")],
)
def test_the_answer_of_a_proxy_is_no_answer_of_the_registry(
    running: Registry, proxy: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "WAIT_S", 0.01)
    one = running.register("o-value", ORDER)
    running.proxy = proxy
    with pytest.raises(InputError, match=f"does not say what schema {one} is: .*no record is lost"):
        decoder(running)(pa.array([framed(one, avro(5))]))
    running.proxy = None
    assert decoder(running)(pa.array([framed(one, avro(5))])).rows.to_pylist() == [{"x": 5}]


def test_a_registry_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "WAIT_S", 0.01)
    with pytest.raises(InputError) as caught:
        client.registry("http://me:secret@127.0.0.1:9", QUICK).latest("o-value")
    assert str(caught.value).startswith(
        "The schema registry http://127.0.0.1:9 does not say which schema 'o-value' has: "
    )
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(client.registry("http://127.0.0.1:9", {"basic.auth.user.info": "me:secret"}))


def test_types_that_another_subject_has(running: Registry) -> None:
    place = {"type": "record", "name": "Place", "namespace": "shop", "fields": [{"name": "zip", "type": "string"}]}
    running.register("place", place)
    order = {**ORDER, "namespace": "shop", "fields": [{"name": "to", "type": "Place"}]}
    one = running.register("o-value", order, references=[("shop.Place", "place", 1)])
    written = client.registry(running.url, QUICK).latest("o-value")
    assert written.references == (("shop.Place", json.dumps(place)),)
    form = AvroForm(avro_schemas.parse(written.text, dict(written.references)), "value")
    read = Decoder(client.registry(running.url, QUICK), form, "value")
    assert read(pa.array([framed(one, avro("8000"))])).rows.to_pylist() == [{"to": {"zip": "8000"}}]


def test_a_writer_that_cannot_be_read_is_a_reason(running: Registry) -> None:
    again = {**ORDER, "fields": [{"name": "x", "type": ["null", "Order"]}]}
    one = running.register("o-value", again)
    [reason] = decoder(running)(pa.array([framed(one, b"\0")])).reasons.to_pylist()
    assert reason == f"the value is not Avro of schema {one}: The Avro type Order contains itself, which no column can."
    with pytest.raises(DefinitionError, match="no version 3"):
        client.registry(running.url, QUICK).latest("o-value", 3)


def test_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(TidegateError, match=r'pip install "tidegate\[registry\]"'):
        client.registry("http://127.0.0.1:9", {})
