//! The real client-go on the machine under test: informers and contending clients against the store's history.
//!
//! The table lists the files in the order of the reports; each file holds rows and their functions.

pub(crate) mod contention;
pub(crate) mod informer;

use judge::informer::{parse, requests};
use suite::Check;
use suite::prelude::*;

pub(crate) static TABLES: &[&[Check]] = &[informer::CHECKS, contention::CHECKS];

/// The program of the project with client-go.
const TOOL: &str = "client";
/// The time in which it starts and ends, in seconds on the reference machine.
const START: f64 = 10.0;

/// Arguments that name the server and the case's namespace.
async fn program_arguments(ctx: &Ctx) -> Verdict<Vec<String>> {
    let namespace = ctx.api.namespace().await?;
    // The file exists where a profile has controllers.
    let mut args: Vec<String> =
        ["--kubeconfig", "{run}/controllers.kubeconfig", "--namespace", namespace].map(String::from).into();
    // As processes of this machine, clients meet the proxy of a mutant, too. It passes their token.
    if ctx.env.cluster.capabilities(ctx.profile()).processes {
        args.extend(["--server".to_owned(), ctx.profile().apiserver.clone()]);
        if let Some(file) = &ctx.profile().token {
            args.extend(["--token-file".to_owned(), file.display().to_string()]);
        }
    }
    Ok(args)
}

/// Runs the program for at most `longest` seconds of the reference machine; returns its log, which is whole.
async fn run_program(ctx: &Ctx, mut args: Vec<String>, longest: f64) -> Verdict<String> {
    args.extend(["--limit".to_owned(), format!("{}s", ctx.limit(longest).as_secs())]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let log = ctx.control.tool_within(TOOL, &args, ctx.limit(longest + START)).await?;
    if log.lines().any(|line| line.contains("\"event\":\"timeout\"")) {
        let by_client = parse(&log).unwrap_or_default();
        let sent: String = by_client.iter().map(|(name, lines)| format!("; {name}: {}", requests(lines))).collect();
        return Err(CheckError::TimedOut { what: format!("the end of {TOOL} {}{sent}", args.join(" ")) });
    }
    Ok(log)
}
