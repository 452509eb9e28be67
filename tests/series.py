"""Mark of tests that depend on how pandas hands over a Series."""

from __future__ import annotations

import pandas as pd
import pytest

HANDED_OVER = pytest.mark.skipif(
    not hasattr(pd.Series, "__arrow_c_stream__"), reason="pandas 2.2.0 hands Arrow no Series: it is any value"
)
"""For tests that tell a Series from other values."""
