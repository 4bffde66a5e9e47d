//! Rules for `targets/toolchains.yaml`.

use model::{ToolchainDefect, Toolchains};

use super::words::{architecture, major_minor};
use crate::document::{Document, at};

pub(crate) fn toolchains(file: &mut Document<'_>, content: &Toolchains, architectures: &[&str]) {
    for (i, defect) in content.defects.iter().enumerate() {
        let ToolchainDefect { name, link, architectures: of, since, fixed, effect } = defect;
        for (field, text) in [("name", name), ("effect", effect)] {
            file.require(!text.trim().is_empty(), at!["defects", i, field], "must not be empty");
        }
        let is_url = link.starts_with("https://");
        file.require(is_url, at!["defects", i, "link"], "must be an https:// address where the defect is discussed");
        if content.defects[..i].iter().any(|other| other.name == *name) {
            file.refuse(at!["defects", i, "name"], format!("{name} is listed already"));
        }
        for (j, arch) in of.iter().enumerate() {
            architecture(file, at!["defects", i, "architectures", j], arch, architectures);
        }
        let rule = "must be a Go release with three numbers, such as 1.26.0";
        if let Some(since) = since {
            file.require(ToolchainDefect::is_release(since), at!["defects", i, "since"], rule);
        }
        if let (Some(since), Some(newest)) = (since, fixed.last())
            && [since, newest].iter().all(|release| ToolchainDefect::is_release(release))
        {
            // Otherwise no release is affected, and `audit` would name none.
            let older = numbers(since) < numbers(newest);
            file.require(older, at!["defects", i, "since"], "must be older than the newest release of `fixed`");
        }
        file.require(!fixed.is_empty(), at!["defects", i, "fixed"], "must have at least one release");
        for (j, good) in fixed.iter().enumerate() {
            file.require(ToolchainDefect::is_release(good), at!["defects", i, "fixed", j], rule);
            let ascends = j == 0 || minor(&fixed[j - 1]) < minor(good);
            file.require(ascends, at!["defects", i, "fixed", j], "must be of a newer minor than the release before it");
        }
    }
}

/// The numbers of a release, in the order in which releases are compared.
fn numbers(release: &str) -> Vec<u32> {
    release.split('.').filter_map(|number| number.parse().ok()).collect()
}

/// Major and minor of a release with three numbers.
fn minor(release: &str) -> Option<(u32, u32)> {
    major_minor(release.rsplit_once('.')?.0)
}
