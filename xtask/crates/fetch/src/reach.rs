//! Whether the mirror answers, without downloading anything.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use model::Target;

use crate::Options;
use crate::http::Client;
use crate::lock::Suite;
use crate::machine;
use crate::mirror::Mirror;
use crate::sets::Locks;

/// A mirror that was asked for the index of each suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Its root.
    pub mirror: String,
    /// Suites whose index it has.
    pub has: Vec<String>,
    /// The others, with what it answered.
    pub lacks: Vec<(String, String)>,
}

/// Asks the mirror for the index of every suite that `targets` need on `host`, all at the same time.
///
/// # Errors
/// As for [`crate::plan()`], and an interrupt. That the mirror does not answer is a result.
pub fn reach(host: &Target, targets: &[&Target], options: &Options, limit: Duration) -> anyhow::Result<Reached> {
    let (_, locks) = machine::pieces(host, targets, options)?;
    let known = Suite::newest(locks.values().flat_map(Locks::suites));
    let mirror = Mirror::choose(options.mirror.as_deref(), Path::new("/etc/apt"), &known);
    let of_guests = targets.iter().filter_map(|target| target.machine.as_ref()).flat_map(|machine| &machine.suites);
    let of_host = host.machine.iter().flat_map(|machine| &machine.host_suites);
    let suites: BTreeSet<&String> = of_guests.chain(of_host).collect();
    let urls: Vec<String> = suites.iter().map(|suite| mirror.url(suite, &format!("dists/{suite}/InRelease"))).collect();
    let answers = Client::new()?.heads(&urls, limit).context("the mirror was not asked")?;
    let mut reached = Reached { mirror: mirror.to_string(), has: Vec::new(), lacks: Vec::new() };
    for (suite, answer) in suites.into_iter().zip(answers) {
        match answer {
            Ok(status) if status.is_success() => reached.has.push(suite.clone()),
            Ok(status) => reached.lacks.push((suite.clone(), format!("it answers {status}"))),
            Err(why) => reached.lacks.push((suite.clone(), why)),
        }
    }
    Ok(reached)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fixture;

    #[test]
    fn each_suite_is_asked_for_and_nothing_is_downloaded() {
        let mut fixture = Fixture::new();
        let reached = |fixture: &Fixture| {
            reach(&fixture.target, &[&fixture.target], &fixture.options, Duration::from_secs(60)).unwrap()
        };
        let found = reached(&fixture);
        assert!(!found.has.is_empty() && found.lacks.is_empty(), "{found:?}");
        assert_eq!(found.mirror, fixture.server.url);
        assert!(fixture.asked().iter().all(|path| path.ends_with("/InRelease")));
        fixture.target.machine.as_mut().unwrap().suites.push("nonesuch".into());
        let lacks = vec![("nonesuch".to_owned(), "it answers 404 Not Found".to_owned())];
        assert_eq!(reached(&fixture), Reached { lacks, ..found });
        // A port that nobody listens on.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        fixture.options.mirror = Some(format!("http://{}/debian", listener.local_addr().unwrap()));
        drop(listener);
        let lost = reached(&fixture);
        assert!(lost.has.is_empty() && lost.lacks[0].1.contains("refused"), "{lost:?}");
    }
}
