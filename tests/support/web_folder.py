"""A web server of files, in a thread, which answers as a test says."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from msgspec import Struct, field


class Reply(Struct):
    """An answer. ``hangs``: its body does not end before the server does; ``length`` is what it says of its length."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None
    hangs: bool = False


class WebFolder:
    """The files by path, each bytes or a whole answer; what is not there is a 404."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.url = ""
        self.files: dict[str, bytes | Reply] = {**files}
        self.asked: list[str] = []
        self.ended = threading.Event()

    def answer(self, path: str) -> Reply:
        self.asked.append(path)
        found = self.files.get(path, Reply(b"<html>no such page</html>", 404, {"Content-Type": "text/html"}))
        return found if isinstance(found, Reply) else Reply(found)


def files_in(folder: Path) -> dict[str, bytes]:
    """The files below a folder, by path."""
    return {one.relative_to(folder).as_posix(): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


@contextmanager
def serving(files: Mapping[str, bytes]) -> Iterator[WebFolder]:
    """Serve these files at ``url`` until the end."""
    folder = WebFolder(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = folder.answer(self.path.removeprefix("/log/"))
            self.send_response(found.status)
            length = len(found.body) if found.length is None else found.length
            for name, value in {"Content-Length": str(length), **found.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(found.body)
            if found.hangs:
                self.wfile.flush()
                folder.ended.wait(60)

        def log_message(self, *given: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    folder.url = f"http://127.0.0.1:{server.server_port}/log"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield folder
    finally:
        folder.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
