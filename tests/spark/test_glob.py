"""Patterns of file names select the files that Hadoop's patterns select."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import SparkSession

from tidegate.errors import DefinitionError
from tidegate.runtime.spark.files.glob import names_like

NAMES = (
    "a1.json",
    "b1.json",
    "c1.json",
    "a.json",
    "ab.json.gz",
    "a-1.json",
    "a^1.json",
    "a{1}.json",
    "a,1.json",
    "a*.json",
    "A1.json",
    "a\n1.json",
    "a+1.json",
    "a&1.json",
    "a!1.json",
)
PATTERNS = (
    "*",
    "*.json",
    "a?.json",
    "[ab]1.json",
    "[^a]*.json",
    "[!a]*.json",
    "[a-b]*.json",
    "{a,b}1.json",
    "{a{1,-1},b*}.json",
    "a\\*.json",
    "a[\\^!]1.json",
    "a[+-]1.json",
    "a,1.json",
    "a}1.json",
    "a\\{1\\}.json",
    "a[&^]1.json",
    "{a,}1.json",
    "a.json*",
    "a+1.json",
    "a^1.json",
    "",
)


def test_patterns_select_names_as_hadoop_does(spark: SparkSession) -> None:
    hadoop = spark._jvm.org.apache.hadoop.fs
    for pattern in PATTERNS:
        theirs = hadoop.GlobPattern(pattern)
        expected = [name for name in NAMES if theirs.matches(name)]
        assert [name for name in NAMES if names_like(pattern).fullmatch(name)] == expected, pattern


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("[ab.json", "a [ without its ]"),
        ("{a,b.json", "a { without its }"),
        ("a\\", "a backslash at its end"),
        ("[]x", "a set that is none"),
        ("[b-a]", "a set that is none"),
        ("[a\\]", "a [ without its ]"),
    ],
)
def test_a_broken_pattern_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(DefinitionError, match=f"pathGlobFilter is .* which has {re.escape(why)}"):
        names_like(pattern)
