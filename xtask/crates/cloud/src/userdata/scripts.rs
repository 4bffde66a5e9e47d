//! The scripts and the unit that user data brings along. They are the same for every machine but for the agent.
//!
//! Whatever goes wrong before the job ends with the machine powered off: a machine that hangs half-way costs quota, and
//! `up` sees the difference.

use super::{Agent, AgentKind, Worker};

/// Where things lie on the machine.
pub(super) struct Place {
    pub(super) user: &'static str,
    pub(super) home: &'static str,
    pub(super) agent: &'static str,
    pub(super) jit: &'static str,
    pub(super) setup: &'static str,
    pub(super) end: &'static str,
    pub(super) unit: &'static str,
    service: &'static str,
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
            service: "archproof-runner.service",
        }
    }
}

/// Closes the machine, fetches the agent, starts the service.
pub(super) fn setup_script(place: &Place, agent: &Agent) -> String {
    let Place { user, home, service, agent: folder, .. } = place;
    let Agent { url, sha256, kind, .. } = agent;
    let needs = match kind {
        AgentKind::ActionsRunner => format!("{folder}/bin/installdependencies.sh\n"),
        AgentKind::GithubActRunner => String::new(),
    };
    let program = kind.program();
    format!(
        r#"#!/bin/bash
# Makes this machine a runner; powers it off if that fails.
set -euo pipefail
trap 'code=$?; [ "$code" -eq 0 ] || {{ echo "archproof: the set-up failed ($code)" >/dev/console || true; systemctl poweroff; }}' EXIT

# The metadata service shows the user data, and so the key of the runner, to everybody on the machine.
nft -f - <<'RULES'
table inet archproof {{
    chain output {{
        type filter hook output priority 0; policy accept;
        meta skuid "{user}" ip daddr 169.254.169.254 reject
        meta skuid "{user}" ip6 daddr {{ fe80::a9fe:a9fe, fd00:ec2::254 }} reject
    }}
}}
RULES

# The copies of the user data that cloud-init keeps, and the drive that it came on.
rm -f /var/lib/cloud/instances/*/user-data.txt* /var/lib/cloud/instances/*/cloud-config.txt \
    /var/lib/cloud/instances/*/obj.pkl /run/cloud-init/instance-data-sensitive.json \
    /run/cloud-init/combined-cloud-config.json
drive=$(blkid -t LABEL=config-2 -o device || blkid -t LABEL=CONFIG-2 -o device || true)
for device in $drive; do
    umount "$device" 2>/dev/null || true
    chmod 0600 "$device"
    chown root:root "$device"
done

# The agent: this file and no other.
install -d -m 0700 -o {user} -g {user} {home}
file=$(mktemp)
curl --fail --silent --show-error --location --proto '=https' --proto-redir '=https' --retry 5 --output "$file" '{url}'
echo '{sha256}  '"$file" | sha256sum --check --quiet
install -d -m 0755 {folder}
tar --extract --gzip --no-same-owner --file "$file" --directory {folder}
rm -f "$file"
test -x {folder}/{program}
{needs}chown -R {user}:{user} {folder}
# On Red Hat's systems a service may not start what lies just anywhere.
if command -v selinuxenabled >/dev/null && selinuxenabled; then
    chcon --type bin_t {folder}/{program}
fi

systemctl daemon-reload
systemctl start --no-block {service}
"#
    )
}

/// Shows the end of the agent's log where an operator of the cloud can read it, then powers the machine off.
pub(super) fn end_script(place: &Place) -> String {
    let Place { jit, agent, .. } = place;
    format!(
        r#"#!/bin/bash
# The job is over: nothing of it may stay.
rm -f {jit}
log=$(ls -t {agent}/_diag/Runner_*.log 2>/dev/null | head -n 1)
[ -z "$log" ] || tail -n 40 "$log" >/dev/console 2>/dev/null
echo "archproof: the runner has ended (${{SERVICE_RESULT:-}} ${{EXIT_STATUS:-}})" >/dev/console
systemctl poweroff
"#
    )
}

/// The agent is told its configuration by its environment: arguments are in the list of processes.
pub(super) fn unit(place: &Place, worker: &Worker) -> String {
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
EnvironmentFile={jit}
Environment=HOME={home} ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE=1
ExecStart={agent}/{program}{arguments}
# It is in the agent's environment now.
ExecStartPost=+/bin/rm -f {jit}
ExecStopPost=+{end}
Restart=no
KillMode=control-group
NoNewPrivileges=yes
RuntimeMaxSec={minutes}min
# As the firewall does, for what might change its user.
IPAddressDeny=169.254.169.254 fe80::a9fe:a9fe fd00:ec2::254
"
    )
}
