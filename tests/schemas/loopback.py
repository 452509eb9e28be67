"""A schema registry on loopback, as small as can be: ids, subjects and versions in the protocol of Confluent's.

It checks nothing, and so takes schemas that a real one would refuse. Tests with a broker have a real one.
"""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Registry:
    """As a context; `url` is its address, `asked` the requested paths, `failing` how many requests still fail.

    proxy  status and body of a proxy that answers instead, None if there is none
    """

    def __init__(self) -> None:
        self._schemas: list[dict[str, Any]] = []
        self._versions: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.failing = 0
        self.proxy: tuple[int, bytes] | None = None

    def __enter__(self) -> Self:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                code, answer = registry._answer(*self.path.partition("?")[::2])
                code, body = registry.proxy or (code, json.dumps(answer).encode())
                self.send_response(code)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def register(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = (), binary: bytes = b"") -> int:
        """The id of a schema, an object or a text, as the newest version of a subject.

        binary  the answer to requests for the serialized schema
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        made = {
            "schema": text,
            "schemaType": kind,
            "references": [dict(zip(("name", "subject", "version"), each, strict=True)) for each in references],
            "binary": b64encode(binary).decode(),
        }
        if made not in self._schemas:
            self._schemas.append(made)
        self._versions.setdefault(subject, []).append(self._schemas.index(made) + 1)
        return self._versions[subject][-1]

    def _answer(self, path: str, query: str) -> tuple[int, Any]:
        if self.failing:
            self.failing -= 1
            return 503, {"error_code": 50302, "message": "not now"}
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            number = int(found[1])
            if not 0 < number <= len(self._schemas):
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            return 200, self._told(number, query)
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(latest|\d+)", path):
            ids = self._versions.get(found[1])
            if ids is None:
                return 404, {"error_code": 40401, "message": f"Subject '{found[1]}' not found."}
            version = len(ids) if found[2] == "latest" else int(found[2])
            if version > len(ids):
                return 404, {"error_code": 40402, "message": f"Version {version} not found."}
            number = ids[version - 1]
            return 200, {"subject": found[1], "version": version, "id": number, **self._told(number, query)}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _told(self, number: int, query: str) -> dict[str, Any]:
        said = dict(self._schemas[number - 1])
        binary = said.pop("binary")
        if "format=serialized" in query and binary:
            said["schema"] = binary
        return said if said["schemaType"] != "AVRO" else {k: v for k, v in said.items() if k != "schemaType"}
