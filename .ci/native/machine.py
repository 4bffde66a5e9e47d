"""Boots a VM with the user data of a runner, and checks what the machine did before it powered itself off.

usage: machine.py --xtask FILE --arch ARCH --image FOLDER --disk FILE --authority FOLDER
                  --reports FOLDER [--archive FILE --components FOLDER] [--case NAME] [ARGUMENTS OF archproof ci]"""

import argparse
import hashlib
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time

from github import REPOSITORY, Github, Server

HERE = pathlib.Path(__file__).resolve().parent
# This machine's loopback address, as a guest of QEMU's user network sees it.
HOST = "10.0.2.2"
AGENT = "github-act-runner"
MEMORY = "4G"
WRONG = "0" * 64
# The whole job of the matrix takes hours on an emulated machine.
QUICK = ["--level", "must", "--profile", "default"]
# Minutes of a machine whose time limit is tested.
SHORT = 5
# `-device virtio-net` looks for a boot ROM, which the project's QEMU has not.
DEVICES = ["virtio-rng-pci", "virtio-net-pci,netdev=net,romfile=", "virtio-blk-pci,drive=root",
           "virtio-blk-pci,drive=data"]

# The checks of a machine that a job can make. `bash -e` ignores the failure of a command after `!` or in `echo "$(...)"`.
CHECKS = """
test "$(id -un)" = runner
test -x "$ARCHPROOF_ROOT/archproof"
! sudo -n true 2>/dev/null || { echo 'the job can become root'; exit 1; }
! touch "$ARCHPROOF_ROOT/x" 2>/dev/null || { echo 'the job can change the harness'; exit 1; }
test ! -e /etc/archproof-runner.env
node=$(node --version)
git=$(git --version)
echo "node $node, ${git#git version }, $(uname -rm), page size $(getconf PAGESIZE)"
"""

# In the background: `systemd-run` waits for the basic system, for which cloud-init does not wait.
INHIBITED = """#cloud-config
bootcmd:
- [sh, -c, 'systemd-run --unit=update systemd-inhibit --what=shutdown --mode=block --why=update sleep infinity &']
"""
# Waits for that program: without it every machine powers itself off.
UNTIL_INHIBITED = """
for try in $(seq 300); do
    systemd-inhibit --list | grep -q update && exit 0
    sleep 1
done
echo 'no program asks the machine to stay on'
exit 1
"""


class Case:
    """A change to a machine that works, and what must come of it."""

    def __init__(self, about, job=None, last="components", options=(), wrong=(), agent=None, stalled=None, vendor=None,
                 minutes=60, code=None):
        self.about = about
        # None: no agent may ask for a job.
        self.job = job
        # The last download: a machine that fails at an earlier step has not tested this case.
        self.last = last
        self.options = list(options)
        # The digests that are wrong.
        self.wrong = set(wrong)
        # The agent's program; None: agent.py; "": there is none.
        self.agent = agent
        # A download that never ends.
        self.stalled = stalled
        # Configuration of the cloud for its images.
        self.vendor = vendor
        self.minutes = minutes
        # The exit code of the job that the agent reports.
        self.code = code


CASES = {
    "job-passes": Case("a small job passes", job=CHECKS, code=0),
    "package": Case("a package does not exist", options=["--package", "archproof-missing"], last=None),
    "agent-digest": Case("the agent has another digest", wrong=["agent"], last="agent"),
    "agent-missing": Case("the agent's archive has no program", agent="", last="agent"),
    "agent-fails": Case("the agent exits with 3", agent="#!/bin/sh\necho 'this agent fails'\nexit 3\n"),
    "agent-broken": Case("the agent's program cannot be executed", agent="#!/no/interpreter\n"),
    "archive-digest": Case("the archive of the harness has another digest", wrong=["archive"], last="archive"),
    "components-digest": Case("the list of components has another digest", wrong=["components"]),
    "job-fails": Case("the job exits with 7", job="exit 7", code=7),
    "job-hangs": Case("the job takes longer than the machine's minutes", job="trap '' TERM; sleep 100000",
                      minutes=SHORT),
    # As a package manager does that updates the machine at this time.
    "power-off-inhibited": Case("a program asks the machine to stay on", job=UNTIL_INHIBITED, code=0, vendor=INHIBITED),
    "download-stalls": Case("the server of the archive stops answering", stalled="archive", minutes=SHORT,
                            last="archive"),
}


class Failure(Exception):
    pass


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def packed(target, files):
    """A tar.gz with these files: name, and text or a file. All are executable."""
    with tarfile.open(target, "w:gz") as tar:
        for name, content in files.items():
            data = content.read_bytes() if isinstance(content, pathlib.Path) else content.encode()
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
    return target


class Rehearsal:
    def __init__(self, options, case, work):
        self.options, self.case, self.work = options, case, work
        self.begin = time.monotonic()
        self.limit = 60 * int(os.environ.get("ARCHPROOF_VM_MINUTES", 300 if case is None else 60))
        self.github = Github(case.job if case else self.run_job())
        self.server = Server(self.github, HOST, *self.certificate(), (work / "server.log").open("w"))
        self.qemu = None

    def say(self, text):
        print(f"{time.monotonic() - self.begin:7.0f} s  {text}", flush=True)

    def run_job(self):
        """The job of a conformance run; the folder `results` is what the agent uploads."""
        arguments = " ".join(self.options.arguments or QUICK)
        return f"{CHECKS}\nmkdir results\nexec archproof ci {arguments} --components \"$ARCHPROOF_COMPONENTS\" --reports results"

    def certificate(self):
        authority, key, request, made = self.options.authority, *(self.work / name for name in ("key", "csr", "crt"))
        extensions = self.work / "extensions"
        # 127.0.0.1 for the program under test on this machine.
        extensions.write_text(f"subjectAltName=IP:{HOST},IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
        for command in [
            ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", request,
             "-subj", "/CN=fakes"],
            ["x509", "-req", "-in", request, "-CA", authority / "ca.crt", "-CAkey", authority / "ca.key", "-days", "30",
             "-set_serial", str(time.time_ns()), "-extfile", extensions, "-out", made],
        ]:
            subprocess.run(["openssl", *command], check=True, capture_output=True)
        return made, key

    def xtask(self, *arguments, **environment):
        done = subprocess.run([self.options.xtask, *map(str, arguments)], capture_output=True, text=True,
                              env={**os.environ, **environment}, check=False)
        if done.returncode != 0:
            raise Failure(f"{' '.join(map(str, arguments))}: exit {done.returncode}: {done.stderr}")
        return done.stdout

    def downloads(self):
        """The options of the user data: addresses on the web server, and digests."""
        case, github, work = self.case, self.github, self.work
        program = HERE / "agent.py" if case is None or case.agent is None else case.agent
        agent = packed(work / "agent.tar.gz", {AGENT: program} if program else {"README": "no program"})
        archive, components = self.options.archive, self.options.components
        name = f"components-{self.options.arch}.json"
        if case is not None:
            archive = packed(work / "archproof.tar.gz", {"archproof-0/archproof": "#!/bin/sh\n"})
            components = work / "components"
            components.mkdir()
            (components / name).write_text("{}\n")
        wrong = case.wrong if case else ()
        digest = lambda which, file: WRONG if which in wrong else sha256(file)
        github.files = {"/agent.tar.gz": agent, "/archproof.tar.gz": archive,
                        **{f"/components/{file.name}": file for file in components.iterdir()}}
        options = ["--agent", AGENT, "--agent-url", f"{github.url}/agent.tar.gz", "--agent-sha256", digest("agent", agent),
                   "--archive", f"{github.url}/archproof.tar.gz#sha256={digest('archive', archive)}",
                   "--components", f"{github.url}/components#sha256={digest('components', components / name)}"]
        if case and case.stalled:
            github.files["/archproof.tar.gz"] = None
        return options + (["--minutes", case.minutes] + case.options if case else [])

    def user_data(self):
        """Registers the runner with the fake, and writes the disk that cloud-init reads."""
        arch, work = self.options.arch, self.work
        here = self.github.url.replace(HOST, "127.0.0.1")
        self.xtask("runner", "jit", "--repo", REPOSITORY, "--arch", arch, "--labels", "self-hosted,archproof-rehearsal",
                   "--out", work / "jit", GITHUB_API_URL=here, GITHUB_RUNNER_TOKEN="ghp_rehearsal",
                   SSL_CERT_FILE=str(self.options.authority / "ca.crt"))
        self.xtask("runner", "userdata", "--arch", arch, "--jit", work / "jit", "--for", "prebuilt", "--out",
                   work / "user-data", *self.downloads())
        (work / "meta-data").write_text(f"instance-id: {work.name}\n")
        files = [work / "user-data", work / "meta-data"]
        if self.case and self.case.vendor:
            (work / "vendor-data").write_text(self.case.vendor)
            files.append(work / "vendor-data")
        disk = work / "cidata"
        with disk.open("wb") as file:
            file.truncate(1 << 20)
        subprocess.run(["mkfs.vfat", "-n", "CIDATA", disk], check=True, capture_output=True)
        subprocess.run(["mcopy", "-i", disk, *files, "::"], check=True)
        return disk

    def command(self, disk):
        """The project's own QEMU, with the machine and processor of targets/."""
        arch, image, work = self.options.arch, self.options.image, self.work
        files = json.loads(self.xtask("fetch", "--arch", arch, "--json"))[arch]
        targets = json.loads(self.xtask("targets", "--json"))["targets"]
        machine = next(target for target in targets if target["name"] == arch)["machine"]
        qemu = machine["qemu"]
        arguments = [
            *files["emulator"]["command"], "-machine", qemu["machine"], "-accel", "tcg,thread=multi", "-cpu", qemu["cpu"],
            "-smp", "2", "-m", MEMORY, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            "-kernel", image / "kernel", "-initrd", image / "initrd",
            "-append", f"root=LABEL=root console={machine['console']} panic=-1 mitigations=off",
            "-serial", f"file:{work / 'console'}", "-qmp", f"unix:{work / 'qmp'},server=on,wait=off",
            # The image stays as it is. The changes are lost anyway, so nothing waits for the disk.
            "-drive", f"if=none,id=root,format=raw,snapshot=on,cache=unsafe,file={self.options.disk}",
            "-drive", f"if=none,id=data,format=raw,readonly=on,file={disk}", "-netdev", "user,id=net",
        ]
        for device in DEVICES:
            arguments += ["-device", device]
        return [str(argument) for argument in arguments + qemu["arguments"]], files["emulator"]["version"]

    def run(self):
        command, version = self.command(self.user_data())
        self.say(f"{self.options.arch}: {self.case.about if self.case else self.github.job.splitlines()[-1]}; QEMU {version}")
        # TMPDIR: the changes of the disk are in an unnamed file there.
        self.qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(self.work)})
        try:
            return self.watch()
        finally:
            if self.qemu.poll() is None:
                self.qemu.kill()
            self.qemu.wait()

    def watch(self):
        """Reports what happens, until QEMU ends. Returns its reason."""
        monitor = self.monitor()
        seen, shown, reason, rest = 0, 0, None, b""
        began = ended = False
        while time.monotonic() - self.begin < self.limit:
            try:
                part = monitor.recv(65536)
            except TimeoutError:
                part = None
            for path in self.github.downloads[seen:]:
                self.say(f"downloads {path}")
            seen = len(self.github.downloads)
            if not began and self.github.leaks is not None:
                self.say("the agent has its job")
                began = True
            log = self.github.log
            for line in log[shown:].decode(errors="replace").splitlines():
                print(f"           | {line}", flush=True)
            shown = len(log)
            if not ended and self.github.code is not None:
                self.say(f"the job ended with {self.github.code}")
                ended = True
            if part is None:
                continue
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                event = json.loads(line)
                if event.get("event") == "SHUTDOWN":
                    reason = event["data"]["reason"]
            if not part:
                self.qemu.wait(60)
                self.say(f"QEMU ended: {reason or f'exit {self.qemu.returncode}'}")
                return reason
        raise Failure(f"the machine was still on after {self.limit // 60} minutes")

    def monitor(self):
        for _ in range(300):
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(self.work / "qmp"))
            except OSError:
                if self.qemu.poll() is not None:
                    raise Failure(f"QEMU ended at once with {self.qemu.returncode}") from None
                time.sleep(0.1)
                continue
            connection.settimeout(1)
            connection.sendall(b'{"execute": "qmp_capabilities"}')
            return connection
        raise Failure("QEMU opened no monitor")

    def check(self, reason):
        """Compares the machine's end with what was expected."""
        github, case = self.github, self.case
        expected = case.code if case else 0
        job = case is None or case.job is not None
        faults = []
        if reason != "guest-shutdown":
            faults.append(f"QEMU ended with {reason}, not because the machine powered itself off")
        if github.code != expected:
            faults.append(f"the job ended with {github.code}, not with {expected}")
        if github.asked != job:
            faults.append("no agent asked for a job" if job else "an agent asked for a job")
        if case:
            faults += self.reached()
        if github.leaks:
            faults.append(f"the job can read the runner's configuration in {', '.join(github.leaks)}")
        if case is None:
            faults += self.results()
        return faults

    def reached(self):
        """Whether the machine came as far as the case, and not further."""
        case, faults = self.case, []
        paths = {None: None, "agent": "/agent.tar.gz", "archive": "/archproof.tar.gz",
                 "components": f"/components/components-{self.options.arch}.json"}
        last = self.github.downloads[-1] if self.github.downloads else None
        if last != paths[case.last]:
            faults.append(f"the last download was {last}, not {paths[case.last]}")
        on = time.monotonic() - self.begin
        if case.minutes == SHORT and on < SHORT * 60:
            faults.append(f"the machine powered itself off after {on:.0f} s, before its limit of {SHORT} minutes")
        return faults

    def results(self):
        """Unpacks the uploaded results of the run."""
        found = self.github.results.get("results.tar.gz")
        if found is None:
            return ["no results were uploaded"]
        reports = self.options.reports
        shutil.rmtree(reports, ignore_errors=True)
        with tarfile.open(fileobj=io.BytesIO(found)) as tar:
            tar.extractall(reports, filter="data")
        records = [file for file in reports.glob("results/*/run.json") if (file.parent / "junit.xml").is_file()]
        if len(records) != 1:
            return [f"the results have {len(records)} runs with run.json and junit.xml"]
        record = json.loads(records[0].read_text())
        counts = ", ".join(f"{count} {outcome}" for outcome, count in record["counts"].items() if count)
        self.say(f"{record['run']['id']}: {record['exit']['name']}, {counts}; {records[0].parent}")
        if (record["exit"]["code"], record["run"]["arch"]) != (0, self.options.arch):
            return [f"the record has exit {record['exit']['code']} on {record['run']['arch']}"]
        return []

    def excerpt(self):
        console = self.work / "console"
        text = console.read_bytes().decode(errors="replace") if console.exists() else ""
        print("\n".join(text.splitlines()[-40:]))


def rehearse(options, name):
    case = CASES[name] if name else None
    # A short path: a socket's is limited.
    work = pathlib.Path(tempfile.mkdtemp(prefix="archproof-vm-"))
    rehearsal = Rehearsal(options, case, work)
    try:
        try:
            faults = rehearsal.check(rehearsal.run())
        except Failure as failure:
            faults = [str(failure)]
        for fault in faults:
            rehearsal.say(f"FAILED: {fault}")
        if faults:
            rehearsal.excerpt()
        print(f"{'FAILED' if faults else 'passed'}: {options.arch} {name or 'run'}, "
              f"{time.monotonic() - rehearsal.begin:.0f} s", flush=True)
        return not faults
    finally:
        (options.image.parent / f"{options.arch}-console.log").write_bytes(
            (work / "console").read_bytes() if (work / "console").exists() else b"")
        shutil.rmtree(work)


def main():
    parser = argparse.ArgumentParser()
    for name in ("xtask", "arch"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("image", "disk", "authority", "reports"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    for name in ("archive", "components"):
        parser.add_argument(f"--{name}", type=pathlib.Path)
    parser.add_argument("--case", choices=["all", *CASES])
    options, options.arguments = parser.parse_known_args()
    # Without a handler, a signal ends this program at once, and QEMU goes on.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    names = list(CASES) if options.case == "all" else [options.case]
    passed = [rehearse(options, name) for name in names]
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
