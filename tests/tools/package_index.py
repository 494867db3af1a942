"""A package index (PEP 503) of wheels in a folder, on loopback, whose releases can be yanked and
removed.
"""

import contextlib
import http.server
import threading
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from pathlib import Path


class PackageIndex:
    """`yanked` gives reasons by file name; `requests` are the paths that were asked for. `missed`
    are the pages, counted from 0 in the order of requests, that do not list the newest release.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.yanked: dict[str, str] = {}
        self.requests: list[str] = []
        self.missed: set[int] = set()
        self.pages = 0
        self.url = ""

    def yank(self, name: str, version: str, reason: str) -> None:
        """Mark a release as withdrawn."""
        self.yanked[f"{name}-{version}-py3-none-any.whl"] = reason

    def remove(self, name: str, version: str) -> None:
        """Take a release off the index."""
        (self.folder / f"{name}-{version}-py3-none-any.whl").unlink()

    def page(self, path: str) -> bytes | None:
        """Return what is served at a path."""
        self.requests.append(path)
        if path.startswith("/files/"):
            file = self.folder / path.removeprefix("/files/")
            return file.read_bytes() if file.is_file() else None
        name = path.removeprefix("/simple/").strip("/")
        files = sorted(self.folder.glob(f"{name}-*.whl"))
        if self.pages in self.missed:
            files = files[:-1]
        self.pages += 1
        links = [self._link(file) for file in files]
        return "\n".join(links).encode() if links else None

    def _link(self, file: Path) -> str:
        reason = self.yanked.get(file.name)
        mark = "" if reason is None else f' data-yanked="{escape(reason)}"'
        digest = sha256(file.read_bytes()).hexdigest()
        return f'<a href="/files/{file.name}#sha256={digest}"{mark}>{file.name}</a>'


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[PackageIndex]:
    """Serve the wheels of a folder."""
    index = PackageIndex(folder)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = index.page(self.path)
            self.send_response(200 if body is not None else 404)
            self.send_header(
                "Content-Type",
                "text/html" if "/simple/" in self.path else "application/octet-stream",
            )
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body or b"")

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Keep the tests' output free of requests."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
        try:
            yield index
        finally:
            server.shutdown()
            thread.join()
