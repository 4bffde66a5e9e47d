//! `--suite upstream`: upstream's own end-to-end suite, beside or instead of our checks.

use anyhow::anyhow;
use model::Target;
use suite::{Selection, upstream};
use targets::Catalogue;

use super::Setting;
use super::repeat::{quoted, repeat};
use crate::args::CiOptions;
use crate::commands::{host_target, request};
use crate::failure::Failure;

/// Parts the selection of our own checks from that of upstream's suite: the first, if anything is left of it, and
/// whether the second was asked for.
pub(super) fn parted(options: &CiOptions) -> Result<(Option<Selection>, bool), Failure> {
    let mut own = options.selection.usual();
    let before = own.suites.len();
    own.suites.retain(|suite| suite != upstream::SUITE);
    let wanted = own.suites.len() < before;
    let refuse = |why: &str| Err(Failure::usage(anyhow!("{why}")));
    if !wanted {
        return match options.upstream.words().first() {
            Some(word) => refuse(&format!("{word} chooses among upstream's specs: add --suite upstream")),
            None => Ok((Some(own), false)),
        };
    }
    if !options.provider.has_node() {
        return refuse("--suite upstream needs a whole cluster: add --cluster node, or --provider kind");
    }
    if options.shard.is_some() {
        return refuse("--shard divides our own checks, and --suite upstream runs whole: leave one of them out");
    }
    let alone = own.suites.is_empty();
    if alone && !(options.selection.checks.is_empty() && options.selection.profiles.is_empty()) {
        return refuse("--check and --profile choose among our own checks; upstream's specs are chosen with --focus");
    }
    Ok(((!alone).then_some(own), true))
}

/// Puts the images that its specs need on the nodes, if it is to run.
pub(super) fn prepare(catalogue: &mut Catalogue, options: &CiOptions) {
    if options.selection.suites.iter().any(|suite| suite == upstream::SUITE) {
        for images in [&mut catalogue.node.disk.images, &mut catalogue.kind.images] {
            let more = catalogue.upstream.images.iter().filter(|image| !images.contains(image));
            let more: Vec<String> = more.cloned().collect();
            images.extend(more);
        }
    }
}

/// The program, for the machine that the harness runs on, if it is to run.
pub(super) fn program<'a>(setting: &Setting<'a>, only: &'a [String]) -> Result<Option<build::Request<'a>>, Failure> {
    if !setting.work.upstream {
        return Ok(None);
    }
    let host = host_target(setting.catalogue)?;
    // A client of another release than the cluster's would be another suite: it is always the pinned one.
    let pinned = request(setting.paths, setting.catalogue, host, None);
    Ok(Some(build::Request { only: Some(only), offline: setting.options.sources.offline, ..pinned }))
}

/// The command that repeats one of its specs.
pub(super) fn again(setting: &Setting<'_>, target: &Target, focus: &str) -> String {
    format!("{} --suite {} --focus {}", repeat(setting, target), upstream::SUITE, quoted(focus))
}
