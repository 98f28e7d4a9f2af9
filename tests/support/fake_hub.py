"""A Hugging Face Hub on loopback: one model, its files on a second port, and faults on demand.

  with FakeHub({"config.json": b"{}", "model.safetensors": b"..."}) as hub:
      hub.breaks["model.safetensors"] = 1000     # the next GET ends after so many bytes of the body
"""

import hashlib
import http.server
import json
import threading

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "org/name"
TOKEN = "hf_secret"


def git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class FakeHub:
    """`asked` lists (port's name, method, path, headers). Large files are those in safetensors."""

    def __init__(self, files):
        self.files = files
        self.asked = []
        self.answers = []    # (code, headers) that the next requests for files get instead
        self.breaks = {}     # file: bytes of the body after which its next GET ends
        self.spoilt = {}     # file: how many GETs of it get another byte at the end
        self.listing_breaks = None  # bytes of the next list of files after which it ends
        self.sizes = {}      # file: the size that is announced
        self.needs_token = False
        self.refusal = None  # (code, X-Error-Code) for everything
        self.gate = threading.Event()  # bodies wait for it in the middle
        self.gate.set()
        self.half_sent = threading.Event()
        self.lock = threading.Lock()

    def __enter__(self):
        self.servers = [self._serve(name) for name in ("hub", "cdn")]
        self.endpoint, self.cdn = (f"http://127.0.0.1:{s.server_address[1]}" for s in self.servers)
        return self

    def __exit__(self, *_):
        self.gate.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def _serve(self, name):
        class Handler(_Handler):
            hub, place = self, name
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def etag(self, file):
        content = self.files[file]
        return (hashlib.sha256(content).hexdigest() if self.is_large(file) else git_sha1(content))

    def entry(self, file):
        """As the Hub lists a folder."""
        content = self.files[file]
        entry = {"type": "file", "path": file, "size": len(content), "oid": git_sha1(content)}
        if self.is_large(file):
            entry["lfs"] = {"oid": self.etag(file), "size": len(content), "pointerSize": 130}
        return entry

    @staticmethod
    def is_large(file):
        return file.endswith(".safetensors")

    def gets(self, file, place=None):
        with self.lock:
            return [headers for where, method, path, headers in self.asked
                    if method == "GET" and path.endswith("/" + file) and place in (None, where)]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub = place = None

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def send(self, code, headers, body=b"", end=None):
        self.send_response(code)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[:end])
        self.close_connection = self.close_connection or end is not None

    def answer(self):
        with self.hub.lock:
            self.hub.asked.append((self.place, self.command, self.path, dict(self.headers)))
        if self.hub.refusal:
            code, kind = self.hub.refusal
            return self.send(code, {"X-Error-Code": kind})
        if self.place == "hub":
            return self.answer_hub()
        return self.send_file(self.path.lstrip("/"))

    def answer_hub(self):
        if self.hub.needs_token and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.send(401, {"X-Error-Code": "GatedRepo"})
        path = self.path.split("?")[0]
        if path in (f"/api/models/{REPO}/revision/main", f"/api/models/{REPO}/revision/{COMMIT}"):
            siblings = [{"rfilename": name, "size": len(content)}
                        for name, content in self.hub.files.items()]
            with self.hub.lock:
                end, self.hub.listing_breaks = self.hub.listing_breaks, None
            return self.send(200, {"Content-Type": "application/json"},
                             json.dumps({"id": REPO, "sha": COMMIT, "siblings": siblings}).encode(),
                             end)
        if path == f"/api/models/{REPO}/tree/{COMMIT}":
            return self.send(200, {"Content-Type": "application/json"},
                             json.dumps([self.hub.entry(name) for name in self.hub.files]).encode())
        prefix = f"/{REPO}/resolve/"
        if not path.startswith(prefix):
            return self.send(404, {"X-Error-Code": "RepoNotFound"})
        file = path[len(prefix):].split("/", 1)[1]
        if file not in self.hub.files:
            return self.send(404, {"X-Error-Code": "EntryNotFound"})
        with self.hub.lock:
            fault = self.hub.answers.pop(0) if self.hub.answers else None
        if fault:
            return self.send(*fault)
        return self.describe(file)

    def describe(self, file):
        """The Hub's own answer: small files themselves, large ones by way of the other port."""
        headers = {"X-Repo-Commit": COMMIT}
        if not self.hub.is_large(file):
            headers["ETag"] = f'"{self.hub.etag(file)}"'
            if self.command == "HEAD":
                headers["Content-Length"] = len(self.hub.files[file])
                return self.send(200, headers)
            return self.send_file(file, headers)
        size = self.hub.sizes.get(file, len(self.hub.files[file]))
        return self.send(302, {**headers, "X-Linked-Etag": f'"{self.hub.etag(file)}"',
                               "X-Linked-Size": size, "Location": f"{self.hub.cdn}/{file}"})

    def send_file(self, file, headers=None):
        content, begin = self.hub.files[file], 0
        with self.hub.lock:
            end = self.hub.breaks.pop(file, None)
            spoilt = self.hub.spoilt.get(file, 0)
            self.hub.spoilt[file] = max(0, spoilt - 1)
        if spoilt:
            content = content[:-1] + bytes([content[-1] ^ 1])
        wanted = self.headers.get("Range")
        if wanted:
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if wanted else 200)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) - begin))
        if wanted:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        body = content[begin:]
        if end is not None:
            self.wfile.write(body[:end])
            self.close_connection = True
            return
        if not self.hub.gate.is_set():
            self.wfile.write(body[:len(body) // 2])
            self.wfile.flush()
            self.hub.half_sent.set()
            self.hub.gate.wait(60)
            body = body[len(body) // 2:]
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # who asked was killed
