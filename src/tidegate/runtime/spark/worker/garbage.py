"""What Python's garbage collector looks through in a worker: not what the imported modules are made of."""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass


@dataclass
class _Spared:
    """How many modules there were when they were spared."""

    modules: int = 0


_spared = _Spared()


def spare_modules() -> None:
    """Where modules were imported since the last call, leave all objects of this process out of collections to come.

    pyspark collects after every task, beside the next task or while it waits for this worker. What a worker imports
    makes some 90,000 objects to look through, none of which is ever garbage (decision 0019). Objects left out still go
    when nobody refers to them; only circles among them stay.
    """
    if len(sys.modules) == _spared.modules:
        return
    gc.collect()
    gc.freeze()
    _spared.modules = len(sys.modules)
