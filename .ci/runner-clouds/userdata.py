"""Reads user data as a machine would: cloud-init's checker, systemd's, a shell; then runs its set-up with stand-ins for
programs that change a machine, and lets each step fail once.

usage: userdata.py CLOUD-INIT-TREE SECRET FILE..."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import yaml

KEYS = {"hostname", "users", "ssh_pwauth", "bootcmd", "package_update", "packages", "write_files", "runcmd", "power_state"}
STEPS = ["nft", "apt-get", "curl", "sha256sum", "tar", "chown"]


def accepted(tree, file):
    """Whether `cloud-init schema` of the package accepts the file, and its output."""
    python = [sys.executable, "-W", "ignore", "-m", "cloudinit.cmd.main", "schema", "--config-file", str(file)]
    environment = {**os.environ, "PYTHONPATH": str(tree / "usr/lib/python3/dist-packages")}
    done = subprocess.run(python, env=environment, capture_output=True, text=True)
    return done.returncode == 0, (done.stdout + done.stderr).strip()


def schema(tree, file):
    good, said = accepted(tree, file)
    assert good, f"{file.name}: cloud-init: {said}"


def violations(tree, work, file):
    """Checks the checker: it must not accept everything."""
    text = file.read_text()
    for what, bad in [
        ("another first line", text.replace("#cloud-config", "#cloud-init", 1)),
        ("a mode that is a number", text.replace("permissions: '0600'", "permissions: 384").replace('permissions: "0600"', "permissions: 384")),
        ("an unknown way to end", text.replace("mode: poweroff", "mode: explode")),
    ]:
        assert bad != text, f"{file.name}: found no text to change for: {what}"
        (work / "bad").write_text(bad)
        assert not accepted(tree, work / "bad")[0], f"cloud-init accepts {what}"


def content(config, ending):
    found = [entry for entry in config["write_files"] if entry["path"].endswith(ending)]
    assert len(found) == 1, f"{ending}: {found}"
    return found[0]


def unit(config, work):
    if not shutil.which("systemd-analyze"):
        print("skipped: systemd-analyze is not installed")
        return
    text = content(config, ".service")["content"]
    lines = []
    for line in text.splitlines():
        # This machine has neither the programs nor the user.
        name, _, value = line.partition("=")
        if name.startswith("Exec"):
            line = f"{name}={'+' if value.startswith('+') else ''}/bin/true"
        if name not in ("User", "Group"):
            lines.append(line)
    file = work / "archproof-runner.service"
    file.write_text("\n".join(lines) + "\n")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True)
    # The output also names errors in units of this machine.
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if "archproof" in line]
    assert not complaints, complaints


def stand_ins(root, failing):
    """Programs that only log that they were called."""
    programs = root / "bin"
    programs.mkdir()
    for name in ["nft", "curl", "sha256sum", "tar", "chown", "systemctl", "install", "blkid", "umount", "chmod", "apt-get"]:
        body = f'#!/bin/bash\necho "{name} $*" >>"{root}/log"\n'
        if name == "nft":
            body += f'cat >>"{root}/rules"\n'
        if name == "sha256sum":
            body += "cat >/dev/null\n"
        if name == "tar":
            for program in ["run.sh", "github-act-runner", "bin/installdependencies.sh"]:
                body += f'mkdir -p "{root}/srv/runner/agent/bin"; printf "#!/bin/sh\\n" >"{root}/srv/runner/agent/{program}"\n'
                body += f'/bin/chmod 755 "{root}/srv/runner/agent/{program}"\n'
            body += f'mkdir -p "{root}/srv/runner/archproof"; printf "#!/bin/sh\\n" >"{root}/srv/runner/archproof/archproof"\n'
            body += f'/bin/chmod 755 "{root}/srv/runner/archproof/archproof"\n'
        body += f"exit {1 if name == failing else 0}\n"
        (programs / name).write_text(body)
        (programs / name).chmod(0o755)


def set_up(script, failing=None, console=True):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        stand_ins(root, failing)
        for place in ["/srv/runner", "/var/lib/cloud", "/run/cloud-init", "/dev/console", "/etc/apt/", "/etc/os-release"]:
            script = script.replace(place, f"{root}{place}")
        for place in ["preferences.d", "sources.list.d"]:
            (root / "etc/apt" / place).mkdir(parents=True)
        (root / "etc/os-release").write_text("NAME=Debian\nID=debian\n")
        (root / "var/lib/cloud/instances/i1").mkdir(parents=True)
        if console:
            (root / "dev").mkdir()
        secret = root / "var/lib/cloud/instances/i1/user-data.txt"
        secret.write_text("the key")
        (root / "setup").write_text(script)
        done = subprocess.run(
            ["bash", str(root / "setup")],
            env={"PATH": f"{root / 'bin'}:{os.environ['PATH']}", "TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=60,
        )
        log = (root / "log").read_text().splitlines()
        rules = (root / "rules").read_text() if (root / "rules").exists() else ""
        return done.returncode, [line.split()[0] for line in log], log, rules, secret.exists()


def runs(config):
    script = content(config, "-setup")["content"]
    code, called, log, rules, secret = set_up(script)
    assert code == 0, (code, log)
    assert not secret, "the copy of the user data still exists"
    assert 'skuid "runner"' in rules and "169.254.169.254" in rules, rules
    assert log[-1].startswith("systemctl start") and "systemctl poweroff" not in log, log
    assert called.index("nft") < called.index("curl") < called.index("sha256sum") < called.index("tar"), called
    for step, console in [(step, True) for step in STEPS] + [("curl", False)]:
        code, called, log, _, _ = set_up(script, step, console)
        assert code != 0 and log[-1] == "systemctl poweroff", f"{step} failed, and: {log}"
        assert not any(line.startswith("systemctl start") for line in log), f"{step} failed, and the runner was started"


def main():
    tree, secret, files = pathlib.Path(sys.argv[1]), sys.argv[2], [pathlib.Path(name) for name in sys.argv[3:]]
    assert files
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        violations(tree, work, files[0])
        seen = set()
        for file in files:
            text = file.read_text()
            assert text.startswith("#cloud-config\n") and len(text) <= 49149, file.name
            schema(tree, file)
            config = yaml.safe_load(text)
            # The checker does not notice a misspelt key.
            assert set(config) == KEYS, sorted(config)
            assert text.count(secret) == 1, f"the configuration is {text.count(secret)} times in {file.name}"
            for entry in config["write_files"]:
                if entry["content"].startswith("#!/bin/bash"):
                    subprocess.run(["bash", "-n"], input=entry["content"], text=True, check=True)
            # For the same architecture and agent, all machines run the same script.
            script = content(config, "-setup")["content"]
            if script not in seen:
                seen.add(script)
                unit(config, work)
                runs(config)
    print(f"{len(files)} user data files accepted by cloud-init, systemd and a shell")


main()
