"""The pages of tutorial, how-to and explanation on Spark: their blocks run, and the quickstart prints its rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tidegate as tg
from docs.pages import run, text
from docs.test_howto import PAGES, QUICKSTART, name_of, program

COLUMNS = "user string, ts timestamp, price double, partition int, offset long"


def test_the_quickstart_prints_its_rows(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"__name__": "quickstart"}
    exec(program().code, names)
    names["main"](tmp_path)
    printed = capsys.readouterr().out.splitlines()
    assert printed == re.findall(r"^    ([AB] \d \d)$", text(QUICKSTART), re.MULTILINE)
    assert printed


@pytest.mark.parametrize("page", [page for page in PAGES if page != QUICKSTART], ids=name_of)
def test_the_blocks_of_a_page_run(spark: SparkSession, page: Path, tmp_path: Path) -> None:
    """All blocks in order, with what the page says that there is: `df`, a stream of files, and `tables`, a folder."""
    folder = tmp_path / "events"
    spark.createDataFrame([], COLUMNS).write.parquet(str(folder))
    df = spark.readStream.schema(COLUMNS).parquet(str(folder))
    assert run(page, {"__name__": page.name, "tg": tg, "df": df, "F": F, "tables": str(tmp_path)})
