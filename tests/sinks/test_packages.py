"""Without the package of a sink the error names the extra to install."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tidegate.errors import TidegateError
from tidegate.runtime.spark.sinks.delta_files import package as of_delta
from tidegate.runtime.spark.sinks.postgres_stages import package as of_postgres


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("deltalake", of_delta, "delta"), ("psycopg", of_postgres, "postgres")],
)
def test_a_missing_package_is_said_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, name: str, package: Callable[[], Any], extra: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TidegateError, match=rf"needs the package {name}: pip install 'tidegate\[{extra}\]'"):
        package()
