//! The scripts and the systemd unit in the user data. Except for the agent they are the same for every machine.
//!
//! Every failure before the job powers the machine off: a hanging machine would use quota, and `up` sees the power-off.

use std::collections::BTreeSet;

use model::Size;

use super::{Agent, AgentKind, Worker};

/// Powers the machine off. From systemd 257 on, logind refuses that to root, too, while a program such as apt holds a
/// `block` inhibitor. It ignores one only if polkit agrees, which many images lack. `--force` asks systemd itself.
/// <https://www.freedesktop.org/software/systemd/man/latest/systemctl.html#--check-inhibitors=>
pub(super) const POWER_OFF: &str = "systemctl poweroff || systemctl poweroff --force";

/// Paths and names on the machine.
pub(super) struct Place {
    pub(super) user: &'static str,
    pub(super) home: &'static str,
    pub(super) agent: &'static str,
    pub(super) jit: &'static str,
    pub(super) setup: &'static str,
    pub(super) end: &'static str,
    pub(super) unit: &'static str,
    pub(super) console: &'static str,
    service: &'static str,
    /// The harness of a prebuilt job.
    pub(super) harness: &'static str,
}

impl Default for Place {
    fn default() -> Place {
        Place {
            user: "runner",
            home: "/srv/runner",
            agent: "/srv/runner/agent",
            jit: "/etc/archproof-runner.env",
            setup: "/usr/local/sbin/archproof-runner-setup",
            end: "/usr/local/sbin/archproof-runner-end",
            unit: "/etc/systemd/system/archproof-runner.service",
            console: "/dev/console",
            service: "archproof-runner.service",
            harness: "/srv/runner/archproof",
        }
    }
}

/// The script that closes the machine, downloads the agent and starts the service. `packages` are those that cloud-init
/// has installed.
pub(super) fn setup_script(place: &Place, worker: &Worker, packages: &BTreeSet<String>) -> String {
    let Place { user, home, service, agent: folder, .. } = place;
    let Agent { url, sha256, kind, size, .. } = &worker.agent;
    let download = download(url, sha256, *size);
    let preparation = worker.preparation.script(place);
    let packages = packages.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    let needs = match kind {
        AgentKind::ActionsRunner => format!("{folder}/bin/installdependencies.sh\n"),
        AgentKind::GithubActRunner => String::new(),
    };
    let program = kind.program();
    format!(
        r#"#!/bin/bash
# Makes this machine a runner; powers it off if that fails.
set -euo pipefail
trap 'code=$?; [ "$code" -eq 0 ] || {{ echo "archproof: the set-up failed ($code)" >/dev/console || true; {POWER_OFF}; }}' EXIT

# The metadata service shows the user data, and therefore the runner's key, to every process of the machine.
nft -f - <<'RULES'
table inet archproof {{
    chain output {{
        type filter hook output priority 0; policy accept;
        meta skuid "{user}" ip daddr 169.254.169.254 reject
        meta skuid "{user}" ip6 daddr {{ fe80::a9fe:a9fe, fd00:ec2::254 }} reject
    }}
}}
RULES

# Remove cloud-init's copies of the user data, and protect the drive that it came on.
rm -f /var/lib/cloud/instances/*/user-data.txt* /var/lib/cloud/instances/*/cloud-config.txt \
    /var/lib/cloud/instances/*/obj.pkl /run/cloud-init/instance-data-sensitive.json \
    /run/cloud-init/combined-cloud-config.json
drive=$(blkid -t LABEL=config-2 -o device || blkid -t LABEL=CONFIG-2 -o device || true)
for device in $drive; do
    umount "$device" 2>/dev/null || true
    chmod 0600 "$device"
    chown root:root "$device"
done

# cloud-init only logs that a package could not be installed, and continues. With all packages installed this changes
# nothing.
if command -v apt-get >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get --quiet --option DPkg::Lock::Timeout=300 --yes install {packages}
else
    dnf --quiet --assumeyes install {packages}
fi

# Download the agent and verify its digest. Old versions of curl check --max-filesize only against the size that the
# server announces, so the kernel also limits the file.
install -d -m 0700 -o {user} -g {user} {home}
{download}install -d -m 0755 {folder}
tar --extract --gzip --no-same-owner --file "$file" --directory {folder}
rm -f "$file"
test -x {folder}/{program}
{needs}chown -R {user}:{user} {folder}
# On Red Hat systems SELinux does not let a service start programs from arbitrary folders.
if command -v selinuxenabled >/dev/null && selinuxenabled; then
    chcon --type bin_t {folder}/{program}
fi

{preparation}systemctl daemon-reload
systemctl start --no-block {service}
"#
    )
}

/// The lines that download a file to `$file` and verify its digest.
pub(super) fn download(url: &str, sha256: &str, size: Size) -> String {
    let (most, kib) = (size.most(), size.most().div_ceil(1024));
    format!(
        r#"file=$(mktemp)
(ulimit -f {kib}; curl --fail --silent --show-error --location --proto '=https' --proto-redir '=https' --retry 5 \
    --max-filesize {most} --output "$file" '{url}')
echo '{sha256}  '"$file" | sha256sum --check --quiet
"#
    )
}

/// The script that powers the machine off after the job. Before that it shows the end of the agent's log on the
/// console, where an operator of the cloud can read it.
///
/// The job owns the folder of the log, and may have replaced the log with a link, a FIFO or an endless file. So the
/// job's user reads the log: only a regular file, opened without following links and without blocking, 64 KiB of it,
/// for at most 20 seconds.
pub(super) fn end_script(place: &Place) -> String {
    let Place { jit, agent, user, console, .. } = place;
    format!(
        r#"#!/bin/bash
# The job is over: remove its configuration, and power off even if the job left something that blocks this script.
trap '{POWER_OFF}' EXIT
rm -f {jit}
lines=$(timeout --kill-after=5 20 runuser -u {user} -- /bin/bash -c '
    cd {agent}/_diag || exit
    newest=$(find . -maxdepth 1 -type f -name "Runner_*.log" -printf "%T@ %s %f\n" | sort -rn | head -n 1)
    read -r _ size name <<<"$newest"
    [ -n "$name" ] || exit
    skip=$((size > 65536 ? size - 65536 : 0))
    dd if="./$name" iflag=nofollow,nonblock,skip_bytes,count_bytes skip="$skip" count=65536 bs=65536 status=none
' 2>/dev/null | tail -n 40 | tr -cd '\11\12\40-\176')
# The console may also block.
printf '%s\n' "$lines" "archproof: the runner has ended (${{SERVICE_RESULT:-}} ${{EXIT_STATUS:-}})" |
    timeout --kill-after=5 10 dd of={console} status=none
"#
    )
}

/// The systemd unit. The agent gets its configuration from the environment, because arguments are visible in the
/// process list. `jobs` are lines with the environment of the jobs.
pub(super) fn unit(place: &Place, worker: &Worker, jobs: &str) -> String {
    let Place { user, home, jit, end, agent, .. } = place;
    let program = worker.agent.kind.program();
    let arguments = match worker.agent.kind {
        AgentKind::ActionsRunner => "",
        AgentKind::GithubActRunner => " run",
    };
    let minutes = worker.minutes;
    format!(
        r"[Unit]
Description=One job of GitHub Actions
Wants=network-online.target
After=network-online.target

[Service]
Type=simple
User={user}
Group={user}
WorkingDirectory={agent}
# `-`: systemd reads the file again for ExecStopPost. If it is missing then, systemd does not run that command, and the
# machine stays on.
EnvironmentFile=-{jit}
Environment=HOME={home} ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE=1
{jobs}ExecStart={agent}/{program}{arguments}
# The configuration is in the agent's environment now.
ExecStartPost=+/bin/rm -f {jit}
ExecStopPost=+{end}
Restart=no
KillMode=control-group
NoNewPrivileges=yes
RuntimeMaxSec={minutes}min
# The same addresses as in the firewall, for processes that change their user.
IPAddressDeny=169.254.169.254 fe80::a9fe:a9fe fd00:ec2::254
"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    use sys::exec::{self, Shell, cmd};

    use super::*;

    /// A simulated machine in a folder: its console, the folder of the agent, and replacements for its programs.
    struct Machine {
        root: PathBuf,
        place: Place,
    }

    impl Machine {
        fn new(name: &str) -> Machine {
            let root = std::env::temp_dir().join(format!("archproof-end-{name}-{}", std::process::id()));
            std::fs::create_dir_all(root.join("agent/_diag")).unwrap();
            std::fs::create_dir_all(root.join("bin")).unwrap();
            let at = |part: &str| -> &'static str { root.join(part).display().to_string().leak() };
            let place = Place { agent: at("agent"), jit: at("jit"), console: at("console"), ..Place::default() };
            let machine = Machine { root, place };
            machine.program("systemctl", "echo \"$@\" >>\"$(dirname \"$0\")/../asked\"");
            // `-u USER -- COMMAND…`: runs as the user of the test.
            machine.program("runuser", "shift 3; exec \"$@\"");
            machine
        }

        fn program(&self, name: &str, script: &str) {
            let file = self.root.join("bin").join(name);
            std::fs::write(&file, format!("#!/bin/bash\n{script}\n")).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        }

        fn log(&self) -> PathBuf {
            self.root.join("agent/_diag/Runner_1.log")
        }

        /// Runs the script and returns the console output.
        fn end(&self) -> String {
            let script = self.root.join("end");
            std::fs::write(&script, end_script(&self.place)).unwrap();
            let shell = Shell::new().unwrap();
            let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.root.join("bin").display());
            let begin = Instant::now();
            let run = cmd!(shell, "bash {script}").env("PATH", path);
            exec::run(run, Duration::from_secs(120)).unwrap();
            assert!(begin.elapsed() < Duration::from_secs(60), "it took {:?}", begin.elapsed());
            let asked = std::fs::read_to_string(self.root.join("asked")).unwrap_or_default();
            assert_eq!(asked, "poweroff\n", "the machine stays on");
            std::fs::read_to_string(self.root.join("console")).unwrap_or_default()
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }

    #[test]
    fn last_log_lines_are_shown_without_control_characters() {
        let machine = Machine::new("log");
        let lines: String = (0..5000).map(|number| format!("line {number} \u{1b}[2J\n")).collect();
        std::fs::write(machine.log(), lines).unwrap();
        std::fs::write(machine.place.jit, "key").unwrap();
        let shown = machine.end();
        assert!(shown.contains("line 4999 [2J\n") && shown.contains("archproof: the runner has ended"), "{shown}");
        assert!(!shown.contains("line 4900") && !shown.contains('\u{1b}'), "{shown}");
        assert!(!Path::new(machine.place.jit).exists());
    }

    #[test]
    fn fifo_link_or_endless_log_does_not_keep_the_machine_on() {
        let machine = Machine::new("fifo");
        let (shell, log) = (Shell::new().unwrap(), machine.log());
        exec::run(cmd!(shell, "mkfifo {log}"), Duration::from_secs(30)).unwrap();
        assert!(machine.end().contains("has ended"));

        let machine = Machine::new("link");
        let secret = machine.root.join("secret");
        std::fs::write(&secret, "planted\n").unwrap();
        symlink(&secret, machine.log()).unwrap();
        let shown = machine.end();
        assert!(shown.contains("has ended") && !shown.contains("planted"), "{shown}");

        let machine = Machine::new("large");
        std::fs::File::create(machine.log()).unwrap().set_len(1 << 40).unwrap();
        assert!(machine.end().contains("has ended"));
    }

    #[test]
    fn refused_power_off_is_forced() {
        let machine = Machine::new("refused");
        machine.program("systemctl", "[ \"$2\" = --force ] || exit 1\necho \"$1\" >>\"$(dirname \"$0\")/../asked\"");
        machine.end();
    }

    #[test]
    fn failing_or_hanging_step_does_not_keep_the_machine_on() {
        for (name, program, script) in
            [("fails", "runuser", "exit 1"), ("missing", "rm", "exit 127"), ("hangs", "runuser", "sleep 1000")]
        {
            let machine = Machine::new(name);
            machine.program(program, script);
            machine.end();
        }
    }
}
