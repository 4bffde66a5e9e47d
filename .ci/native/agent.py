#!/usr/bin/env python3
"""A runner's agent for the fake GitHub of `github.py`: takes one job, runs its script, and uploads its log and results.

It has the name and the arguments of the agent in targets/runners.yaml, and gets its configuration in the same variable.
Like GitHub's agent it exits with 0 if the job failed."""

import base64
import io
import json
import os
import pathlib
import stat
import subprocess
import sys
import tarfile
import time
import urllib.request

CONFIGURATION = "ACTIONS_RUNNER_INPUT_JITCONFIG"
# Folders in which the machine keeps its own files; a job must not find the runner's configuration in any of them.
SEARCHED = ["/etc", "/run", "/var", "/tmp", "/usr/local", "/srv"]
SMALL = 4 << 20
# Seconds between two parts of the log.
PAUSE = 10


def decoded(text):
    return json.loads(base64.b64decode(text))


class Session:
    def __init__(self, configuration):
        files = {name: decoded(content) for name, content in decoded(configuration).items()}
        self.url = files[".runner"]["ServerUrl"]
        self.token = files[".credentials"]["Data"]["Token"]

    def post(self, path, body):
        for attempt in range(5):
            request = urllib.request.Request(f"{self.url}/agent/{path}", data=body, method="POST", headers={
                "Authorization": f"Bearer {self.token}", "Content-Type": "application/octet-stream"})
            try:
                with urllib.request.urlopen(request, timeout=300) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError:
                raise
            except OSError as error:
                print(f"{path}: {error}", flush=True)
                time.sleep(5 * attempt)
        raise SystemExit(f"{path}: the server does not answer")


def readable(secret):
    """The files and disks of the machine in which this user can read the configuration, and those disks themselves."""
    found = []
    for top in SEARCHED:
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    status = os.lstat(path)
                    if stat.S_ISREG(status.st_mode) and status.st_size <= SMALL:
                        if secret in pathlib.Path(path).read_bytes():
                            found.append(path)
                except OSError:
                    continue
    for device in pathlib.Path("/dev").iterdir():
        try:
            if stat.S_ISBLK(device.lstat().st_mode):
                with device.open("rb"):
                    found.append(str(device))
        except OSError:
            continue
    return found


def run(script, session, log):
    work = pathlib.Path("_work")
    work.mkdir(exist_ok=True)
    process = subprocess.Popen(["/bin/bash", "-e", "-c", script], cwd=work, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    os.set_blocking(process.stdout.fileno(), False)
    ended = False
    while not ended:
        begin = time.monotonic()
        while time.monotonic() - begin < PAUSE and not ended:
            ended = process.poll() is not None
            time.sleep(0.2)
        if part := process.stdout.read():
            log.write(part)
            log.flush()
            session.post("log", part)
    results = work / "results"
    if results.is_dir():
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            tar.add(results, "results")
        session.post("results/results.tar.gz", archive.getvalue())
    return process.returncode


def main():
    configuration = os.environ.pop(CONFIGURATION)
    session = Session(configuration)
    diagnostics = pathlib.Path("_diag")
    diagnostics.mkdir(exist_ok=True)
    with (diagnostics / "Runner_test.log").open("wb") as log:
        log.write(b"the agent asks for its job\n")
        log.flush()
        job = session.post("job", json.dumps({"readable": readable(configuration.encode())}).encode())
        code = run(job["script"], session, log)
        log.write(f"the job ended with {code}\n".encode())
        session.post("end", json.dumps({"code": code}).encode())


if sys.argv[1:] != ["run"]:
    raise SystemExit(f"usage: {sys.argv[0]} run")
main()
