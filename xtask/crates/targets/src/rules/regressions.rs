//! Rules for `targets/regressions.yaml`. The command verifies that a named check exists.

use model::{Components, Profile, Regression, Tried};

use super::words::{name, once, one_of};
use crate::document::{Document, at};

/// Run folders have the id in their names and contain sockets, whose paths are limited to about a hundred characters.
const LONGEST_ID: usize = 24;
const MOST_TRIES: u32 = 1000;

/// Checks the entries. `components` and `profiles` are None if their file has problems.
pub(crate) fn regressions(
    file: &mut Document<'_>,
    entries: &[Regression],
    components: Option<&Components>,
    profiles: Option<&[Profile]>,
) {
    for (i, entry) in entries.iter().enumerate() {
        let Regression { id, set, profile, tries, says, tried, .. } = entry;
        let path = at!["regressions", i, "id"];
        name(file, path, id);
        file.require(id.len() <= LONGEST_ID, path, format!("must have at most {LONGEST_ID} characters"));
        once(file, path, id, entries[..i].iter().map(|earlier| &earlier.id));
        texts(file, i, entry);
        versions(file, i, entry);
        if let Some(components) = components {
            let valid = components.sets.iter().map(|set| set.name.as_str());
            one_of(file, at!["regressions", i, "set"], set, valid);
        }
        if let (Some(profile), Some(profiles)) = (profile, profiles) {
            let valid = profiles.iter().map(|profile| profile.name.as_str());
            one_of(file, at!["regressions", i, "profile"], profile, valid);
        }
        let rule = format!("must be from 1 to {MOST_TRIES}");
        file.require((1..=MOST_TRIES).contains(tries), at!["regressions", i, "tries"], rule);
        let said = says.as_ref().is_none_or(|says| !says.trim().is_empty());
        file.require(said, at!["regressions", i, "says"], "must not be empty");
        if let Some(Tried { times, machine }) = tried {
            file.require(*times > 0, at!["regressions", i, "tried", "times"], "must be at least 1");
            let named = !machine.trim().is_empty();
            file.require(named, at!["regressions", i, "tried", "machine"], "must not be empty");
        }
    }
}

fn texts(file: &mut Document<'_>, i: usize, entry: &Regression) {
    let Regression { what, source, check, .. } = entry;
    let is_sentence = what.ends_with('.') && what.contains(' ');
    file.require(is_sentence, at!["regressions", i, "what"], "must be a sentence");
    let rule = "must be an https:// address where the defect is discussed";
    file.require(source.starts_with("https://"), at!["regressions", i, "source"], rule);
    file.require(!check.trim().is_empty(), at!["regressions", i, "check"], "must not be empty");
}

fn versions(file: &mut Document<'_>, i: usize, entry: &Regression) {
    let Regression { version, control, .. } = entry;
    let rule = "must be the version of a release, such as v3.6.8";
    file.require(Regression::is_release(version), at!["regressions", i, "version"], rule);
    if let Some(control) = control {
        let path = at!["regressions", i, "control"];
        file.require(Regression::is_release(control), path, rule);
        file.require(control != version, path, "must be another release than `version`");
    }
}
