//! One client with a connection to each apiserver of the profile; it uses one server at a time.

use crate::ctx::Ctx;
use crate::error::CheckError;

/// The apiservers that a workload talks to.
pub struct Servers(Vec<String>);

/// A client that moves to the next server when its current server fails.
pub(super) struct Clients {
    at_each: Vec<Ctx>,
    current: usize,
}

impl Servers {
    /// Only the profile's first apiserver.
    pub fn first(ctx: &Ctx) -> Servers {
        Servers(vec![ctx.profile().apiserver.clone()])
    }

    /// All apiservers of the profile; skips the check if there is only one.
    pub fn all(ctx: &Ctx) -> Result<Servers, CheckError> {
        let all = ctx.servers();
        if all.len() < 2 {
            return Err(CheckError::Skipped { need: "a second apiserver".into() });
        }
        Ok(Servers(all))
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// A client with this name; clients with different numbers begin at different servers.
    pub(super) async fn clients(&self, ctx: &Ctx, name: &str, number: usize) -> Result<Clients, CheckError> {
        let mut at_each = Vec::new();
        for server in &self.0 {
            at_each.push(ctx.contending_worker(name, server).await?);
        }
        let current = number % at_each.len();
        Ok(Clients { at_each, current })
    }
}

impl Clients {
    pub(super) fn ctx(&self) -> &Ctx {
        &self.at_each[self.current]
    }

    pub(super) fn next_server(&mut self) {
        self.current = (self.current + 1) % self.at_each.len();
    }
}
