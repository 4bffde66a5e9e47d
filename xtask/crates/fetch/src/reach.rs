//! Checks whether the mirror answers, without downloading anything.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use model::Target;
use reqwest::StatusCode;

use crate::Options;
use crate::http::Client;
use crate::mirror::{Mirror, Place};
use crate::piece;
use crate::sets::Locks;

/// The result of asking a mirror for the index of each suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Its root.
    pub mirror: String,
    /// Suites whose index it has.
    pub has: Vec<String>,
    /// The other suites, with the mirror's answer.
    pub lacks: Vec<(String, String)>,
}

/// Asks the mirror for the index of every suite that `targets` need on `host`, all at the same time.
///
/// # Errors
/// As for [`crate::plan()`], and an interrupt. A mirror that does not answer is a result, not an error.
pub fn reach(host: &Target, targets: &[&Target], options: &Options, limit: Duration) -> anyhow::Result<Reached> {
    let (_, locks) = piece::pieces(host, targets, options)?;
    let mirror =
        Mirror::choose(options.mirror.as_deref(), Path::new("/etc/apt"), locks.values().flat_map(Locks::suites));
    let of_guests = targets.iter().filter_map(|target| target.machine.as_ref()).flat_map(|machine| &machine.suites);
    let of_host = host.machine.iter().flat_map(|machine| &machine.host_suites);
    let suites: BTreeSet<&String> = of_guests.chain(of_host).collect();
    let index = |suite: &str, place: &Place| place.url(&format!("dists/{suite}/InRelease"));
    let of =
        |suite: &&String| -> Vec<String> { mirror.places(suite).iter().map(|place| index(suite, place)).collect() };
    let urls: Vec<String> = suites.iter().flat_map(of).collect();
    let mut answers = Client::new()?.heads(&urls, limit).context("the mirror was not asked")?.into_iter();
    let mut reached = Reached { mirror: mirror.to_string(), has: Vec::new(), lacks: Vec::new() };
    for suite in suites {
        let places = mirror.places(suite).len();
        let lacks: Vec<String> = answers.by_ref().take(places).filter_map(why_not).collect();
        if lacks.len() < places {
            reached.has.push(suite.clone());
        } else {
            reached.lacks.push((suite.clone(), lacks.join("; ")));
        }
    }
    Ok(reached)
}

/// Why a server does not have it; None if it has.
fn why_not(answer: Result<StatusCode, String>) -> Option<String> {
    match answer {
        Ok(status) if status.is_success() => None,
        Ok(status) => Some(format!("it answers {status}")),
        Err(why) => Some(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fixture;

    #[test]
    fn each_suite_is_requested_and_nothing_is_downloaded() {
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
        // A port without a listener.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        fixture.options.mirror = Some(format!("http://{}/debian", listener.local_addr().unwrap()));
        drop(listener);
        let lost = reached(&fixture);
        assert!(lost.has.is_empty() && lost.lacks[0].1.contains("refused"), "{lost:?}");
    }
}
