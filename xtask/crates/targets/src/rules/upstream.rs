//! Rules for `targets/upstream.yaml`.

use model::Upstream;

use super::node::Others;
use crate::document::{Document, at};

/// Checks how upstream's suite is run. The patterns are Go regular expressions; Go reports errors in them at run time.
pub(crate) fn upstream(file: &mut Document<'_>, upstream: &Upstream, others: Others<'_>) {
    let Upstream { component, focus, images, needs, flags, limit } = upstream;
    others.component(file, at!["component"], component);
    file.require(!focus.is_empty(), at!["focus"], "must be a regular expression");
    for (i, name) in images.iter().enumerate() {
        others.image(file, at!["images", i], name);
    }
    for (i, lacking) in needs.iter().enumerate() {
        // An empty pattern would match every spec.
        file.require(!lacking.specs.is_empty(), at!["needs", i, "specs"], "must be a regular expression");
        file.require(!lacking.need.is_empty(), at!["needs", i, "need"], "must say what is needed");
    }
    for name in flags.keys() {
        // A flag may contain capitals: `minStartupPods`.
        let good = name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)) && !name.starts_with('-');
        file.require(good, at!["flags", name], "must be a flag's name without dashes before it");
    }
    file.require(*limit > 0, at!["limit"], "must be a number of minutes");
}
