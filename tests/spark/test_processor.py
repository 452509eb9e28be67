"""Input of a step without Spark: `StageProcessor` between the frames of its calls and the kernel."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pandas as pd
import pyarrow as pa

from tidegate.runtime.spark.worker.processor import StageProcessor

BLOBS = 5


class Blob:
    """Stands for the bytes of a blob; a weak reference shows whether it is still alive."""


class Watching:
    """A step that drops each blob before it takes the next."""

    output_schema = pa.schema([("n", pa.int64())])
    metrics = MappingProxyType({})

    def __init__(self) -> None:
        self.held: list[int] = []

    def begin(self, store: Any, blobs: Iterable[Any], *_: Any) -> Any:
        came = []
        for blob in blobs:
            came.append(weakref.ref(blob))
            del blob
            # The frame of a blob may live until the next frame comes.
            self.held.append(sum(each() is not None for each in came))
        return SimpleNamespace(parts=iter(()), metrics={}, wake_at=None)


def frames() -> Iterator[pd.DataFrame]:
    for _ in range(BLOBS):
        yield pd.DataFrame({"blob": [Blob()]})


def test_a_blob_is_let_go_of_when_the_step_is_done_with_it() -> None:
    processor: Any = StageProcessor(Watching(), {})
    processor.init(Mock())
    list(processor.handleInputRows(("0",), frames(), None))
    assert processor._stage.held == [1] * BLOBS
