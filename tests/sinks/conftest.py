"""A PostgreSQL for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sinks.server import NoPostgresError, Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    pytest.importorskip("psycopg")
    try:
        with Server() as running:
            yield running
    except NoPostgresError as error:
        pytest.skip(f"no PostgreSQL: {error}")
