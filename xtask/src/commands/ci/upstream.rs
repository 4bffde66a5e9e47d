//! `--suite upstream`: upstream's end-to-end suite, in addition to the project's checks or instead of them.

use anyhow::anyhow;
use cli::{Failure, host_target, quoted, request};
use model::Target;
use suite::{Selection, upstream};
use targets::Catalogue;

use super::RunContext;
use super::repeat::repeat;
use crate::args::CiOptions;

/// Separates the selection of the project's checks from that of upstream's suite. Returns the former, unless only
/// upstream was selected, and whether upstream was selected.
pub(super) fn parted(options: &CiOptions) -> Result<(Option<Selection>, bool), Failure> {
    let mut own = options.selection.usual();
    let before = own.suites.len();
    own.suites.retain(|suite| suite != upstream::SUITE);
    let wanted = own.suites.len() < before;
    let refuse = |why: &str| Err(Failure::usage(anyhow!("{why}")));
    if !wanted {
        return match options.upstream.words().first() {
            Some(word) => refuse(&format!("{word} selects among upstream's specs: add --suite upstream")),
            None => Ok((Some(own), false)),
        };
    }
    if !options.provider.has_node() {
        return refuse("--suite upstream needs a whole cluster: add --cluster node, or --provider kind");
    }
    if options.shard.is_some() {
        return refuse("--shard divides the project's checks, but --suite upstream runs whole: leave one of them out");
    }
    let alone = own.suites.is_empty();
    if alone && !(options.selection.checks.is_empty() && options.selection.profiles.is_empty()) {
        return refuse("--check and --profile select the project's checks: use --focus to select upstream's specs");
    }
    Ok(((!alone).then_some(own), true))
}

/// Adds the images that upstream's specs need to the nodes, if the suite runs.
pub(super) fn prepare(catalogue: &mut Catalogue, options: &CiOptions) {
    if options.selection.suites.iter().any(|suite| suite == upstream::SUITE) {
        for images in [&mut catalogue.node.disk.images, &mut catalogue.kind.images] {
            let more = catalogue.upstream.images.iter().filter(|image| !images.contains(image));
            let more: Vec<String> = more.cloned().collect();
            images.extend(more);
        }
    }
}

/// The request to build the suite for the machine that runs the harness, if the suite runs.
pub(super) fn program<'a>(context: &RunContext<'a>, only: &'a [String]) -> Result<Option<build::Request<'a>>, Failure> {
    if !context.plan.upstream {
        return Ok(None);
    }
    let host = host_target(context.catalogue)?;
    // Always the pinned release: a client of another release would be another suite.
    let pinned = request(context.paths, context.catalogue, host, None);
    Ok(Some(build::Request { only: Some(only), offline: context.options.sources.offline, ..pinned }))
}

/// The command that repeats one of upstream's specs.
pub(super) fn again(context: &RunContext<'_>, target: &Target, focus: &str) -> String {
    format!("{} --suite {} --focus {}", repeat(context, target), upstream::SUITE, quoted(focus))
}
