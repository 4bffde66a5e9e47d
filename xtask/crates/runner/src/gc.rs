//! Finds runners and servers that earlier runs left behind. A pure decision over lists. Only runners and servers with
//! this program's mark are ever selected.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::github::Runner;
use crate::name::Name;

/// Metadata of a server: the name of its runner.
pub const SERVER_RUNNER: &str = "archproof-runner";
/// Metadata of a server: the repository or organisation of its runner. Several of these may share a cloud project.
pub const SERVER_SCOPE: &str = "archproof-scope";
/// A server without a runner may still be storing logs, or may be so new that its runner is not registered yet.
const GRACE: Duration = Duration::from_secs(600);

/// A server of any cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub id: String,
    pub name: String,
    pub created: Timestamp,
    pub metadata: BTreeMap<String, String>,
}

/// A runner or server to delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Deletion {
    pub id: String,
    pub name: String,
    pub why: String,
}

/// Offline runners that this program made and that are older than `older`.
pub fn runners(runners: &[Runner], now: Timestamp, older: Duration) -> Vec<Deletion> {
    let mut found = Vec::new();
    for runner in runners.iter().filter(|runner| !runner.is_online() && !runner.busy) {
        let Some(name) = Name::parse(&runner.name) else { continue };
        let Some(age) = age(name.created, now).filter(|age| *age > older) else { continue };
        let why = format!("offline, and made {} ago", sys::progress::elapsed(age));
        found.push(Deletion { id: runner.id.to_string(), name: runner.name.clone(), why });
    }
    found
}

/// Servers of this scope whose runner is gone, or is offline and the server is older than `older`.
///
/// The list of servers must be older than the list of runners: otherwise a server whose runner is registered between
/// the two would seem to have none.
pub fn servers(servers: &[Server], runners: &[Runner], scope: &str, now: Timestamp, older: Duration) -> Vec<Deletion> {
    let mut found = Vec::new();
    for (server, name) in of_scope(servers, scope) {
        let Some(age) = age(server.created, now) else { continue };
        let why = match runners.iter().find(|runner| runner.name == *name) {
            None if age > GRACE => "its runner is gone",
            Some(runner) if !runner.is_online() && !runner.busy && age > older => "its runner is offline",
            _ => continue,
        };
        found.push(Deletion { id: server.id.clone(), name: server.name.clone(), why: why.into() });
    }
    found
}

/// The names of the runners of this scope's servers that are not in the list.
pub fn missing(servers: &[Server], runners: &[Runner], scope: &str) -> BTreeSet<String> {
    let names = of_scope(servers, scope).map(|(_, name)| name);
    names.filter(|name| runners.iter().all(|runner| runner.name != **name)).cloned().collect()
}

/// The servers of a scope, each with the name of its runner. GitHub compares the names of owners and repositories
/// independent of case.
fn of_scope<'a>(servers: &'a [Server], scope: &'a str) -> impl Iterator<Item = (&'a Server, &'a String)> {
    let is_own = move |of: &String| of.eq_ignore_ascii_case(scope);
    let own = servers.iter().filter(move |server| server.metadata.get(SERVER_SCOPE).is_some_and(is_own));
    own.filter_map(|server| Some((server, server.metadata.get(SERVER_RUNNER)?)))
}

/// None if the time is in the future.
fn age(created: Timestamp, now: Timestamp) -> Option<Duration> {
    Duration::try_from(now.duration_since(created)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn now() -> Timestamp {
        Timestamp::from_second(1_795_000_000).unwrap()
    }

    fn runner(id: u64, name: &str, status: &str, busy: bool) -> Runner {
        let value = serde_json::json!({"id": id, "name": name, "status": status, "busy": busy});
        serde_json::from_value(value).unwrap()
    }

    fn made(minutes: u64) -> String {
        Name::fresh("riscv64", now() - Duration::from_secs(minutes * 60))
    }

    #[test]
    fn only_own_old_offline_runners_are_deleted() {
        let ids = |all: &[Runner]| -> Vec<String> { runners(all, now(), HOUR).into_iter().map(|d| d.id).collect() };
        let all = [
            runner(1, &made(61), "offline", false),
            runner(2, &made(59), "offline", false),
            runner(3, &made(61), "online", false),
            runner(4, &made(61), "offline", true),
            runner(5, "board-1", "offline", false),
            runner(6, "archproof", "offline", false),
            runner(7, &Name::fresh("riscv64", now() + HOUR), "offline", false),
            runner(8, &made(9999), "offline", false),
        ];
        assert_eq!(ids(&all), ["1", "8"]);
    }

    #[test]
    fn only_servers_of_this_scope_without_a_live_runner_are_deleted() {
        let server = |id: &str, minutes: u64, scope: &str, runner: Option<&str>| {
            let mut metadata = BTreeMap::from([(SERVER_SCOPE.to_owned(), scope.to_owned())]);
            metadata.extend(runner.map(|runner| (SERVER_RUNNER.to_owned(), runner.to_owned())));
            let created = now() - Duration::from_secs(minutes * 60);
            Server { id: id.into(), name: id.into(), created, metadata }
        };
        let all = [
            runner(1, "idle", "online", false),
            runner(2, "off", "offline", false),
            runner(3, "busy", "offline", true),
        ];
        let servers_there = [
            server("gone", 11, "o/r", Some("x")),
            server("young", 9, "o/r", Some("x")),
            server("idle", 999, "o/r", Some("idle")),
            server("off", 61, "o/r", Some("off")),
            server("starting", 59, "o/r", Some("off")),
            server("busy", 999, "o/r", Some("busy")),
            server("elsewhere", 999, "o/other", Some("x")),
            server("unmarked", 999, "o/r", None),
        ];
        for scope in ["o/r", "O/R"] {
            let found = servers(&servers_there, &all, scope, now(), HOUR);
            let ids: Vec<&str> = found.iter().map(|deletion| deletion.id.as_str()).collect();
            assert_eq!(ids, ["gone", "off"], "{scope}");
            assert_eq!(missing(&servers_there, &all, scope), ["x".to_owned()].into(), "{scope}");
        }
    }
}
