"""The HTTP side of the scripted model server: threads of the standard library, loopback only."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from .script import Call, Script, ScriptedError, Turn
from .wire import PATHS, answer, error_body, read_call, stream

__all__ = ["ScriptedServer", "serve"]

_BODY_LIMIT = 200_000_000


class ScriptedServer:
    """Serves a script on 127.0.0.1; *calls* holds what was asked, in order, without the headers that hold keys."""

    def __init__(self, script: Script, port: int = 0, host: str = "127.0.0.1") -> None:
        self.script = script
        self.calls: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._asked = 0
        self._refused: Counter[tuple[int, int]] = Counter()
        server = self

        class Handler(_Handler):
            owner = server

        self._http = _Server((host, port), Handler)
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._http.server_address[1])

    @property
    def base_url(self) -> str:
        """The address for `base_url=`, whatever the protocol."""
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> ScriptedServer:
        """Serve in a thread of its own."""
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def serve_forever(self) -> None:
        """Serve in this thread until `close`."""
        self._http.serve_forever()

    def close(self) -> None:
        """Stop serving and let the port go."""
        if self._thread is not None:
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()

    def decide(self, call: Call, key: str) -> tuple[Turn, int]:
        """Return the turn that answers *call* and the number of the call."""
        with self._lock:
            self._asked += 1
            number, limit = self._asked, self.script.rate_limit
            if limit is not None and number % limit.every == 0:
                return _refuse(429, "scripted rate limit", limit.retry_after), number
            refusal = self._door(call, key)
            if refusal is not None:
                return refusal, number
            found = self.script.find(call)
            if found is None:
                return _refuse(400, "the script has no conversation for this call"), number
            conversation, index, turn = found
            error = turn.error
            if error is None or error.times is None:
                return turn, number
            self._refused[conversation, index] += 1
            over = self._refused[conversation, index] > error.times
            return (turn.model_copy(update={"error": None}) if over else turn), number

    def _door(self, call: Call, key: str) -> Turn | None:
        script = self.script
        if script.api_key is not None and key != script.api_key:
            return _refuse(401, "invalid api key")
        if script.models and call.model not in script.models:
            return _refuse(404, f"model {call.model!r} not found")
        return None


def _refuse(status: int, message: str, retry_after: float | None = None) -> Turn:
    return Turn(error=ScriptedError(status=status, message=message, retry_after=retry_after))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that hangs up early is no fault."""


class _Handler(BaseHTTPRequestHandler):
    owner: ScriptedServer
    protocol_version = "HTTP/1.1"
    timeout = 600
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """List the models, as clients ask for at their start."""
        names = self.owner.script.models or ("scripted",)
        self._json(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in names]})

    def do_HEAD(self) -> None:
        """Say that somebody is here."""
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        """Answer a call."""
        raw = self.rfile.read(min(int(self.headers.get("content-length") or 0), _BODY_LIMIT))
        path = urlsplit(self.path).path
        if path.endswith("/count_tokens"):
            self._json(200, {"input_tokens": 100})
            return
        protocol = next((name for end, name in PATHS.items() if path.endswith(end)), None)
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if protocol is None or not isinstance(body, dict):
            self._json(404 if protocol is None else 400, {"error": {"message": f"{path}: no call that is known"}})
            return
        self._answer(protocol, body)

    def _answer(self, protocol: str, body: dict[str, Any]) -> None:
        task = self.headers.get("x-agentcompass-task", "")
        call = read_call(protocol, body, task)
        self.owner.calls.append({"protocol": protocol, "task": task, "body": body})
        turn, number = self.owner.decide(call, self._key())
        if turn.delay:
            time.sleep(turn.delay)
        if turn.error is not None:
            self._refuse(protocol, turn.error)
        elif turn.body is not None:
            self._send(turn.status, "text/html", turn.body.encode())
        elif call.stream:
            self._stream(stream(protocol, turn, call.model, number))
        else:
            self._json(200, answer(protocol, turn, call.model, number))

    def _key(self) -> str:
        return self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")

    def _refuse(self, protocol: str, error: ScriptedError) -> None:
        if error.reset:
            self.close_connection = True
            self.connection.close()
            return
        after = {} if error.retry_after is None else {"retry-after": f"{error.retry_after:g}"}
        self._json(error.status, error_body(protocol, error), after)

    def _stream(self, events: Iterator[bytes] | Any) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.write(b"0\r\n\r\n")

    def _json(self, status: int, data: Any, headers: dict[str, str] | None = None) -> None:
        self._send(status, "application/json", json.dumps(data).encode(), headers)

    def _send(self, status: int, kind: str, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serve(script: Script, port: int = 0) -> Iterator[ScriptedServer]:
    """Serve *script* for the time of a `with` block."""
    server = ScriptedServer(script, port).start()
    try:
        yield server
    finally:
        server.close()
