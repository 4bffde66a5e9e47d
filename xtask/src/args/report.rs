//! `cargo xtask report`: its subcommands, in the order of the alphabet. Their options are in a file each.

mod gcs;
mod prow;
mod site;
mod support;

use clap::{Args as ClapArgs, Subcommand};

pub(crate) use gcs::{GcsOptions, Token};
pub(crate) use prow::{JobOptions, ProwOptions};
pub(crate) use site::SiteOptions;
pub(crate) use support::{SupportFormat, SupportOptions};

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ReportOptions {
    #[command(subcommand)]
    pub(crate) command: ReportCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ReportCommand {
    /// Upload a run to a bucket that TestGrid or Spyglass reads, in the order that they need
    Gcs(GcsOptions),
    /// Write a run as a folder in Prow's layout
    Prow(ProwOptions),
    /// Write a static site over recorded runs: a grid of checks × architectures, a page for each check and run
    Site(SiteOptions),
    /// Tell what runs show of each program on each architecture, and what upstream's tiers ask
    Support(SupportOptions),
}
