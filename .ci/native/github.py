"""A fake of GitHub, and a web server for the files that a runner downloads. One HTTPS server has both.

It serves the two requests of `runner jit`, and an interface of its own for `agent.py`: the protocol of GitHub's agents is
not public. The runner's configuration has the form of GitHub's: base64 of JSON with base64 of files."""

import base64
import http.server
import json
import secrets
import socketserver
import ssl
import threading
import time
from urllib.parse import unquote

REPOSITORY = "archproof/rehearsal"
JSON = "application/json"
# A job's log and results are smaller; a larger request is a defect of the job.
LARGEST = 256 << 20


def encoded(value):
    return base64.b64encode(json.dumps(value).encode()).decode()


class Github:
    """The state: the registered runner, its job, and the requests of the agent."""

    def __init__(self, job):
        self.job = job
        # path: a file, or None for a download that never ends.
        self.files = {}
        self.token = secrets.token_urlsafe(32)
        self.runner = None
        self.url = None
        self.downloads = []
        # Whether an agent asked for a job, which it may not get.
        self.asked = False
        self.log = b""
        self.leaks = None
        self.results = {}
        self.code = None
        self.changed = threading.Event()
        self.ended = threading.Event()

    def registered(self, asked):
        self.runner = {"id": 1, "name": asked["name"], "os": "unknown", "status": "offline", "busy": False, "labels": [
            {"id": n, "name": label, "type": "custom"} for n, label in enumerate(asked["labels"], 1)]}
        files = {
            ".runner": {"AgentId": 1, "AgentName": asked["name"], "Ephemeral": True,
                        "GitHubUrl": f"{self.url}/{REPOSITORY}", "ServerUrl": self.url},
            ".credentials": {"Scheme": "OAuth", "Data": {"Token": self.token}},
        }
        config = {name: encoded(content) for name, content in files.items()}
        return {"runner": self.runner, "encoded_jit_config": encoded(config)}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A connection that is opened and not used must not keep a thread.
    timeout = 120

    def do_GET(self):
        github, path = self.server.github, unquote(self.path.partition("?")[0])
        if path == f"/repos/{REPOSITORY}":
            self.answer(200, {"full_name": REPOSITORY, "private": True, "default_branch": "main"})
        elif path in github.files:
            self.file(path, github.files[path])
        else:
            self.answer(404, {"message": "Not Found"})

    def do_POST(self):
        github = self.server.github
        body = self.body()
        if self.path == f"/repos/{REPOSITORY}/actions/runners/generate-jitconfig":
            self.answer(201, github.registered(json.loads(body)))
        elif self.headers.get("Authorization") != f"Bearer {github.token}":
            self.answer(401, {"message": "Bad credentials"})
        else:
            self.agent(self.path, body)

    def agent(self, path, body):
        """The interface of `agent.py`. Each request is sent with the token of the configuration."""
        github = self.server.github
        if path == "/agent/job":
            github.asked = True
            # One job: a second agent gets none.
            script, github.job = github.job, None
            if script is None:
                return self.answer(404, {"message": "no job is waiting"})
            github.leaks = json.loads(body)["readable"]
            return self.answer(200, {"script": script})
        if path == "/agent/log":
            github.log += body
        elif path.startswith("/agent/results/"):
            github.results[path.rpartition("/")[2]] = body
        elif path == "/agent/end":
            github.code = json.loads(body)["code"]
            github.ended.set()
        else:
            return self.answer(404, {"message": "Not Found"})
        github.changed.set()
        return self.answer(200, {})

    def body(self):
        size = int(self.headers.get("Content-Length", 0))
        if size > LARGEST:
            raise ValueError(f"a request of {size} bytes")
        return self.rfile.read(size)

    def file(self, path, file):
        github = self.server.github
        github.downloads.append(path)
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        if file is None:
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            # No byte follows, until the client closes the connection.
            self.connection.settimeout(None)
            self.rfile.read(1)
            return
        self.send_header("Content-Length", str(file.stat().st_size))
        self.end_headers()
        with file.open("rb") as content:
            while part := content.read(1 << 20):
                self.wfile.write(part)

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", JSON)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, text, *values):
        print(f"{time.strftime('%H:%M:%S')} {text % values}", file=self.server.log, flush=True)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, github, host, certificate, key, log):
        super().__init__(("127.0.0.1", 0), Handler)
        self.github, self.log = github, log
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        github.url = f"https://{host}:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def finish_request(self, request, client):
        # In the thread of the connection: a client that does not complete the handshake must not block the others.
        request.settimeout(60)
        with self.context.wrap_socket(request, server_side=True) as connection:
            super().finish_request(connection, client)

    def handle_error(self, request, client):
        import sys
        print(f"{time.strftime('%H:%M:%S')} {sys.exc_info()[1]!r}", file=self.log, flush=True)
