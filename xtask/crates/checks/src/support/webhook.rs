//! The webhook next to an apiserver (targets/programs/faults/webhook.go): its address, its CA, its modes, and the
//! changes that it makes.

use anyhow::{Context, anyhow};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::support::fault_injector::{Counts, FaultInjector};
use suite::prelude::*;

/// The annotation in which the webhook's patch names the operation.
pub(crate) const REVIEWED: &str = "archproof.example/reviewed";

/// The mode in which reviews wait until the mode is changed: longer than any apiserver waits.
const HOLD: &str = "slow 600000";

/// The webhook of the profile. Dropping it sets the mode back to `normal`.
pub(crate) struct Webhook<'a> {
    injector: FaultInjector<'a>,
    /// As the apiserver reaches it.
    base: String,
    /// The CA of its certificate, PEM in base64.
    ca: String,
}

impl Webhook<'_> {
    /// Skips the check if the profile has no webhook.
    pub(crate) async fn open(ctx: &Ctx) -> Verdict<Webhook<'_>> {
        let mut injector = FaultInjector::webhook(ctx)?;
        // The program reports its port with its counters: only the place where it runs knows it.
        let port = injector.set("normal").await?.of("port");
        if port == 0 {
            return Err(anyhow!("the webhook's log does not name its port").into());
        }
        let file = &ctx.profile().tls.ca;
        let pem = std::fs::read(file).with_context(|| format!("failed to read {}", file.display()))?;
        Ok(Webhook { injector, base: format!("https://127.0.0.1:{port}"), ca: STANDARD.encode(pem) })
    }

    /// Sets `normal`, `slow MILLISECONDS` or `fail`, and returns the counters of the previous mode.
    pub(crate) async fn set(&mut self, mode: &str) -> Verdict<Counts> {
        self.injector.set(mode).await
    }

    /// Keeps the answers of all reviews from now on.
    pub(crate) async fn hold(&mut self) -> Verdict {
        self.injector.set(HOLD).await.map(drop)
    }

    /// Waits until this many reviews have come since [`Webhook::hold`], then answers them.
    pub(crate) async fn release_after(&mut self, counter: &str, reviews: u64) -> Verdict {
        self.injector.wait_until_effective(HOLD, &[(counter, reviews)]).await?;
        self.injector.off().await.map(drop)
    }

    /// A client configuration for the path `admit` or `convert`.
    pub(crate) fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("{}/{path}", self.base), "caBundle": self.ca})
    }
}
