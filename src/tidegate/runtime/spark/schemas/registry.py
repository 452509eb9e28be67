"""A schema registry that speaks Confluent's protocol, asked with confluent-kafka's client.

An id means the same schema for ever, so each process asks for it once. The driver asks for the reader's schema when a
stream is defined, and the workers ask for the schemas that records name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from json import JSONDecodeError
from typing import Any

from tidegate.errors import DefinitionError, InputError, TidegateError

NOT_FOUND = 404
ANSWER_S = 30
"""Most seconds for one answer."""
TRIES, WAIT_S = 3, 1
"""Tries, and seconds between them: older clients do not ask again if there is no answer."""
AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"


@dataclass(frozen=True)
class Written:
    """A schema as the registry has it; `references` has the texts of the schemas that it names, by name."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    id: int | None = None


@dataclass(frozen=True)
class Registry:
    """The address of a registry; `settings` are settings of confluent-kafka's client, in pairs."""

    url: str = field(repr=False)
    settings: tuple[tuple[str, Any], ...] = field(default=(), repr=False)

    @property
    def shown(self) -> str:
        """The address as errors show it, without a password."""
        front, at, host = self.url.rpartition("@")
        return f"{front.partition('://')[0]}://{host}" if at else self.url

    def check(self) -> None:
        """Raises TidegateError if the client is missing, DefinitionError if it does not know a setting."""
        self._client()

    def latest(self, subject: str, version: int | None = None, *, form: str | None = None) -> Written:
        """The newest schema of a subject, or the schema of a version.

        Raises DefinitionError if there is none, InputError if the registry does not answer.
        """
        client = self._client()

        def ask() -> Any:
            if version is None:
                return client.get_latest_version(subject, fmt=form)
            return client.get_version(subject, version, fmt=form)

        found = self._asked(ask, f"which schema {subject!r} has")
        if found is None:
            which = "schema" if version is None else f"version {version}"
            raise DefinitionError(
                f"The schema registry {self.shown} has no {which} of the subject {subject!r}. Register it, see how it "
                'is written, or say another one: tg.kafka.schema_registry(url, subject="...").'
            )
        return self._written(client, found.schema, found.schema_id, form)

    def schema(self, number: int) -> Written | None:
        """The schema of an id, None if the registry has none. Raises InputError if it does not answer."""
        client = _kept(self)
        found = self._asked(lambda: client.get_schema(number), f"what schema {number} is")
        return None if found is None else self._written(client, found, number)

    def _written(self, client: Any, schema: Any, number: int, form: str | None = None) -> Written:
        references: dict[str, str] = {}
        self._refer(client, schema, references, form)
        return Written(schema.schema_type or AVRO, schema.schema_str, tuple(references.items()), number)

    def _refer(self, client: Any, schema: Any, known: dict[str, str], form: str | None) -> None:
        for each in schema.references or ():
            if each.name not in known:
                said = f"what {each.subject!r}, version {each.version}, is"
                found = self._asked(partial(client.get_version, each.subject, each.version, fmt=form), said)
                if found is not None:
                    known[each.name] = found.schema.schema_str
                    self._refer(client, found.schema, known, form)

    def _asked(self, ask: Callable[[], Any], said: str) -> Any:
        """The answer, None for "not found"."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        for left in reversed(range(TRIES)):
            try:
                return ask()
            except SchemaRegistryError as error:
                # The client itself has asked again where that may help. A proxy before a registry that is down may say
                # "not found" too; a registry says it with a number of its own, 404 or 40401 to 40403.
                if error.http_status_code == NOT_FOUND and str(error.error_code).startswith(str(NOT_FOUND)):
                    return None
                raise self._silent(said, f"{error.http_status_code}, {error.error_message}") from error
            except Exception as error:
                # The HTTP library changes with the client's version, and its errors have no common class.
                if not isinstance(error, OSError | JSONDecodeError) and not type(error).__module__.startswith("http"):
                    raise
                if not left:
                    raise self._silent(said, f"{type(error).__name__}: {error}") from error
                time.sleep(WAIT_S)
        raise AssertionError("the last try returns or raises")

    def _silent(self, said: str, why: str) -> InputError:
        return InputError(
            f"The schema registry {self.shown} does not say {said}: {why}. See that it runs and lets this client read, "
            "and start the query again: it goes on from its checkpoint, and no record is lost."
        )

    def _client(self) -> Any:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise TidegateError(
                "A schema registry needs its client, here and on the workers: pip install "
                f'"tidegate[registry]". Python says: {error}'
            ) from error
        try:
            return SchemaRegistryClient({"timeout": ANSWER_S, **dict(self.settings), "url": self.url})
        except (ValueError, TypeError, OSError) as error:
            raise DefinitionError(
                f"The client of the schema registry does not take these settings: {error}."
            ) from error


@cache
def _kept(registry: Registry) -> Any:
    """The client of a registry in this process."""
    return registry._client()  # noqa: SLF001 - the process's part of it


def registry(url: str, settings: Mapping[str, Any]) -> Registry:
    """A registry, checked. Raises as `Registry.check`."""
    made = Registry(url, tuple(sorted(settings.items())))
    made.check()
    return made
