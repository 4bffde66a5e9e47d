//! Rules for `targets/upstream.yaml`.

use model::{Components, Upstream};

use crate::document::{Document, at};

/// Checks how upstream's suite is run; `components` are None where their file has problems of its own. Its patterns are
/// Go's, which says what is wrong with them when it reads them.
pub(crate) fn upstream(file: &mut Document<'_>, upstream: &Upstream, components: Option<&Components>) {
    let Upstream { component, focus, needs, flags, limit } = upstream;
    let known = components.is_none_or(|all| all.sets.iter().flat_map(|s| &s.components).any(|c| c.name == *component));
    file.require(known, at!["component"], format!("no component of components.yaml is called {component}"));
    file.require(!focus.is_empty(), at!["focus"], "must be a regular expression");
    for (i, lacking) in needs.iter().enumerate() {
        // It would match every spec.
        file.require(!lacking.specs.is_empty(), at!["needs", i, "specs"], "must be a regular expression");
        file.require(!lacking.need.is_empty(), at!["needs", i, "need"], "must say what is needed");
    }
    for name in flags.keys() {
        // `minStartupPods` is one.
        let good = name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)) && !name.starts_with('-');
        file.require(good, at!["flags", name], "must be a flag's name without dashes before it");
    }
    file.require(*limit > 0, at!["limit"], "must be a number of minutes");
}
