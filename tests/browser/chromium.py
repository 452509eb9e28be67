"""Chromium, driven through its debugging protocol over a pair of pipes: nothing to install but the browser."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROGRAM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
PATIENCE_S = 30.0
POLL_S = 0.05
_AS_3_AND_4 = """
import os, sys
reads, writes, program, *arguments = sys.argv[1:]
os.dup2(int(reads), 3)
os.dup2(int(writes), 4)
os.execv(program, [program, *arguments])
"""


class Page:
    """One page of a browser of its own, with its requests and its errors."""

    def __init__(self, profile: Path) -> None:
        assert PROGRAM is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]

        # Chromium reads 3 and writes 4. First move both to numbers from 10 on: either may be the other's target.
        reads, writes = (fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (theirs_in, theirs_out))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _AS_3_AND_4, str(reads), str(writes), PROGRAM, *options, "about:blank"],
            pass_fds=(reads, writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for one in (theirs_in, theirs_out, reads, writes):
            os.close(one)
        self._number, self._rest, self._session = 0, b"", None
        self.requests: list[str] = []
        self.errors: list[str] = []
        (target, *_) = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Result of a method of the browser's protocol."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._heard(message)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._in, 1 << 16)
            assert more, "the browser has ended"
            self._rest += more
        message, self._rest = self._rest.split(b"\0", 1)
        found: dict[str, Any] = json.loads(message)
        return found

    def _heard(self, message: dict[str, Any]) -> None:
        told = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(told["exceptionDetails"]))
        if message.get("method") == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.errors.append(told["entry"]["text"])

    def open(self, url: str, width: int = 1280, height: int = 1000, *, dark: bool = False) -> None:
        """Load a page at this size, light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """Value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until the expression is true."""
        end = time.monotonic() + PATIENCE_S
        while not self.value(expression):
            assert time.monotonic() < end, f"{expression} stays false"
            time.sleep(POLL_S)

    def picture(self, path: Path) -> None:
        """Write a picture of the page as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def close(self) -> None:
        """End the browser."""
        self._session = None
        self.call("Browser.close")
        self._process.wait(PATIENCE_S)
        os.close(self._in)
        os.close(self._out)
