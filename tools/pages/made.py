"""All generated files of docs/, and the functions that make them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.pages import (
    DOCS,
    joins,
    notebooks,
    operations,
    parity,
    playground,
    scenarios,
    shell,
    state_tables,
    suppress,
    windows,
)

FILES: dict[Path, Callable[[], str]] = {
    DOCS / "parity.md": parity.page,
    operations.PAGE: operations.page,
    operations.DASHBOARD: operations.dashboard,
    playground.DATA: playground.data,
    **notebooks.files(),
    DOCS / "scenarios.md": scenarios.page,
    DOCS / "shell.md": shell.page,
    DOCS / "state-tables.md": state_tables.page,
    DOCS / "windows" / "tumbling.svg": windows.tumbling,
    DOCS / "windows" / "hopping.svg": windows.hopping,
    DOCS / "windows" / "sliding.svg": windows.sliding,
    DOCS / "windows" / "session.svg": windows.session,
    DOCS / "windows" / "unlimited.svg": windows.unlimited,
    DOCS / "windows" / "batch.svg": windows.batch,
    DOCS / "joins" / "kinds.svg": joins.kinds,
    DOCS / "joins" / "reaches.svg": joins.reaches,
    DOCS / "joins" / "clocks.svg": joins.clocks,
    DOCS / "joins" / "tables.svg": joins.of_table,
    DOCS / "suppress" / "until-window-closes.svg": suppress.until_window_closes,
    DOCS / "suppress" / "until-time-limit.svg": suppress.until_time_limit,
    DOCS / "suppress" / "buffers.svg": suppress.buffers,
}
"""Functions that return the text of a file, by path."""
