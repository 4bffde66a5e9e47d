//! Rules for `targets/expectations.yaml`. The suite verifies that a named check exists.

use std::str::FromStr;

use jiff::civil::Date;
use model::{Expectation, Profile};

use crate::document::{Document, at};
use crate::tree::Step;

/// Checks the entries against the names in the other files.
pub(crate) fn expectations(
    file: &mut Document<'_>,
    entries: &[Expectation],
    architectures: &[&str],
    profiles: Option<&[Profile]>,
) {
    let profiles = profiles.map(|profiles| profiles.iter().map(|profile| profile.name.as_str()).collect::<Vec<_>>());
    for (i, entry) in entries.iter().enumerate() {
        known(file, at!["expectations", i, "arch"], &entry.arch, architectures);
        if let Some(profiles) = &profiles {
            known(file, at!["expectations", i, "profile"], &entry.profile, profiles);
        }
        for (field, text) in [("says", &entry.says), ("reason", &entry.reason)] {
            file.require(!text.trim().is_empty(), at!["expectations", i, field], "must not be empty");
        }
        let is_url = entry.issue.starts_with("https://");
        file.require(
            is_url,
            at!["expectations", i, "issue"],
            "must be an https:// address where the failure is discussed",
        );
        // Dates are compared as text, so 2027-3-1 is not accepted.
        let is_date = Date::from_str(&entry.expires).is_ok_and(|date| date.to_string() == entry.expires);
        file.require(is_date, at!["expectations", i, "expires"], "must be a day such as 2027-03-31");
    }
}

fn known(file: &mut Document<'_>, path: &[Step], given: &[String], valid: &[&str]) {
    for (j, name) in given.iter().enumerate().filter(|(_, name)| !valid.contains(&name.as_str())) {
        let path = [path, at![j]].concat();
        file.refuse(&path, format!("{name} is not one of {}", valid.join(", ")));
    }
}
