//! Rules for `targets/upstreams.yaml`.

use model::{Components, Head, Upstreams};

use crate::document::{Document, at};

/// Checks that each head is unique and names a set that can be built from a checkout. `components` is None if its file
/// has problems.
pub(crate) fn upstreams(file: &mut Document<'_>, upstreams: &Upstreams, components: Option<&Components>) {
    let Upstreams { heads } = upstreams;
    let plain = |text: &str| {
        !text.is_empty()
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
            && !text.starts_with('-')
    };
    for (i, Head { id, set, repository, branch }) in heads.iter().enumerate() {
        file.require(plain(id), at!["heads", i, "id"], "must be letters, digits, -, . and _");
        if heads[..i].iter().any(|earlier| earlier.id == *id) {
            file.refuse(at!["heads", i, "id"], format!("{id} has an entry already"));
        }
        let known = components.is_none_or(|components| components.sets.iter().any(|known| known.name == *set));
        file.require(known, at!["heads", i, "set"], "must be a set of components.yaml");
        let owned = repository.split_once('/').is_some_and(|(owner, name)| plain(owner) && plain(name));
        file.require(owned, at!["heads", i, "repository"], "must be OWNER/NAME");
        file.require(plain(branch), at!["heads", i, "branch"], "must be the name of a branch");
    }
}
