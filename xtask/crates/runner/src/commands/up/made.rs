//! A registered runner and its server: waiting for the runner, and removing both.

use std::time::Duration;

use cloud::compute::{Compute, NewServer, Server};
use cloud::{Kind, Session};
use sys::deadline::{OnInterrupt, Probe, until};
use sys::progress::{Phase, say};

use super::super::Stop;
use crate::gc::SERVER_RUNNER;
use crate::github::{Github, Runner};

/// Interval between requests to the cloud and to GitHub.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Time in which a server appears in Nova's list if its creation had no answer: Nova may still be at work.
const APPEARS: Duration = Duration::from_secs(30);
/// Deadline for the deletion of a server.
const GONE: Duration = Duration::from_secs(120);

/// A registered runner; its server may exist or not.
pub(super) struct Made<'a> {
    pub(super) github: &'a Github,
    pub(super) session: &'a Session,
    pub(super) nova: &'a Compute<'a>,
    pub(super) runner: Runner,
    pub(super) limit: Duration,
}

impl Made<'_> {
    /// Creates the server and waits for the runner; returns the server's id.
    pub(super) fn start(&self, server: &NewServer) -> Result<String, Stop> {
        let phase = Phase::start(format!("start the server {}", server.name));
        let id = self.nova.create(server)?;
        say(&format!("creating server {id}"));
        let what = format!("the runner {} to come online", server.name);
        until(&what, self.limit, LOOK_EVERY, OnInterrupt::Stop, || self.look(&id, &phase))?;
        phase.done(&format!("{} is online", self.runner));
        Ok(id)
    }

    fn look(&self, id: &str, phase: &Phase) -> Probe<()> {
        let hopeless = |stop: Stop| Probe::Hopeless(anyhow::Error::new(stop));
        match self.github.runner(self.runner.id) {
            Ok(Some(runner)) if runner.is_online() || runner.busy => return Probe::Ready(()),
            Ok(Some(_)) => {}
            // An ephemeral runner disappears after its job, or if someone deletes it.
            Ok(None) => return hopeless(Stop::Remote(format!("{} is no longer registered", self.runner))),
            // A start takes minutes, which an outage must not end: neither could be removed meanwhile.
            Err(error) if error.is_outage() => return Probe::NotYet(error.to_string()),
            Err(error) => return hopeless(error.into()),
        }
        match self.nova.get(id) {
            Ok(None) => hopeless(Stop::Remote(format!("the server {id} is gone: it was deleted"))),
            Ok(Some(server)) => match server.hopeless() {
                Some(why) => hopeless(Stop::Remote(format!("the server {id} will not become a runner: {why}"))),
                None => {
                    phase.status(format!("server {}, runner offline", server.status));
                    Probe::NotYet(format!("the server is {}, the runner offline", server.status))
                }
            },
            Err(fault) if fault.kind == Kind::Remote => Probe::NotYet(fault.text),
            Err(fault) => hopeless(fault.into()),
        }
    }

    /// Removes both. Warns about what it cannot remove; `gc` finds it later. If the runner has got a job in the meantime,
    /// both stay, and the result is the server.
    pub(super) fn undo(&self, why: &Stop) -> Option<String> {
        say(&format!("{why}; removing the runner and its server"));
        self.session.begin_teardown();
        match self.github.for_teardown().delete(self.runner.id) {
            Ok(_) => say(&format!("deleted {}", self.runner)),
            Err(error) if error.code() == 4 => {
                if let Some(server) = self.servers().ok().and_then(|mut servers| servers.pop()) {
                    say(&format!("{} came online late and has a job; it stays", self.runner));
                    return Some(server);
                }
                stays(&self.runner.to_string(), &error);
            }
            Err(error) => stays(&self.runner.to_string(), &error),
        }
        match self.leftovers(why) {
            Ok(servers) => servers.iter().for_each(|id| self.delete(id)),
            Err(stop) => stays(&format!("a server {}", self.runner.name), &stop),
        }
        None
    }

    /// The servers to delete. Waits for one that may still appear.
    fn leftovers(&self, why: &Stop) -> Result<Vec<String>, Stop> {
        if !matches!(why, Stop::Cloud(fault) if fault.unsure) {
            return self.servers();
        }
        let what = format!("a server {} to appear", self.runner.name);
        let found = until(&what, APPEARS, LOOK_EVERY, OnInterrupt::Continue, || match self.servers() {
            Ok(found) if found.is_empty() => Probe::NotYet("Nova lists none".into()),
            Ok(found) => Probe::Ready(found),
            Err(stop) => Probe::Hopeless(anyhow::Error::new(stop)),
        });
        Ok(found?)
    }

    fn delete(&self, id: &str) {
        match self.nova.delete(id).and_then(|_| self.nova.wait_until_gone(id, GONE)) {
            Ok(()) => say(&format!("deleted server {id}")),
            Err(fault) => stays(&format!("the server {id}"), &fault),
        }
    }

    /// The servers that were created for this runner. Asks Nova, because the response to a creation may have been lost.
    fn servers(&self) -> Result<Vec<String>, Stop> {
        let all = self.nova.list(SERVER_RUNNER)?.into_iter();
        let own = |server: &Server| server.metadata.get(SERVER_RUNNER).is_some_and(|name| *name == self.runner.name);
        Ok(all.filter(own).map(|server| server.id).collect())
    }
}

fn stays(what: &str, why: &dyn std::fmt::Display) {
    say(&format!("warning: {what} may still exist; `cargo xtask runner gc` removes it: {why}"));
}
