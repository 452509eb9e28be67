"""Names of the JVM are looked up once; those that may change are not cached."""

from __future__ import annotations

from py4j.java_gateway import JavaPackage
from pyspark.sql import SparkSession


def test_classes_and_static_methods_are_looked_up_once(spark: SparkSession) -> None:
    jvm = spark._jvm
    assert jvm is not None
    assert jvm.java.lang.System is jvm.java.lang.System
    assert jvm.java.lang.System.nanoTime is jvm.java.lang.System.nanoTime
    assert jvm.java.lang.System.nanoTime() < jvm.java.lang.System.nanoTime()


def test_what_may_become_a_class_is_not_kept(spark: SparkSession) -> None:
    jvm = spark._jvm
    assert jvm is not None
    assert isinstance(jvm.AtomicMoveNotSupportedException, JavaPackage)
    jvm.java.nio.file.Files  # noqa: B018 - the package is kept from here on
    from py4j.java_gateway import java_import

    java_import(jvm, "java.nio.file.AtomicMoveNotSupportedException")
    assert jvm.AtomicMoveNotSupportedException._fqn == "java.nio.file.AtomicMoveNotSupportedException"
