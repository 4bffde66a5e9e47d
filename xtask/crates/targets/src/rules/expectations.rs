//! Rules for `targets/expectations.yaml`. The suite verifies that a named check exists.

use std::str::FromStr;

use jiff::civil::Date;
use model::{Expectation, ExpectedDifference, Profile};

use super::words::{architecture, one_of};
use crate::document::{Document, at};

/// Checks the entries against the names in the other files.
pub(crate) fn expectations(
    file: &mut Document<'_>,
    entries: &[Expectation],
    architectures: &[&str],
    profiles: Option<&[Profile]>,
) {
    for (i, entry) in entries.iter().enumerate() {
        for (j, arch) in entry.arch.iter().enumerate() {
            architecture(file, at!["expectations", i, "arch", j], arch, architectures);
        }
        for (j, name) in entry.profile.iter().enumerate() {
            if let Some(profiles) = profiles {
                let valid = profiles.iter().map(|profile| profile.name.as_str());
                one_of(file, at!["expectations", i, "profile", j], name, valid);
            }
        }
        for (field, text) in [("says", &entry.says), ("reason", &entry.reason)] {
            file.require(!text.trim().is_empty(), at!["expectations", i, field], "must not be empty");
        }
        end_and_address(file, "expectations", i, &entry.issue, &entry.expires);
    }
}

/// Checks the known groups of differences between architectures.
pub(crate) fn differences(file: &mut Document<'_>, entries: &[ExpectedDifference], architectures: &[&str]) {
    for (i, entry) in entries.iter().enumerate() {
        for (j, arch) in entry.arch.iter().enumerate() {
            architecture(file, at!["differences", i, "arch", j], arch, architectures);
        }
        for (field, text) in [("subject", &entry.subject), ("reason", &entry.reason)] {
            file.require(!text.trim().is_empty(), at!["differences", i, field], "must not be empty");
        }
        // An entry without a look would expect every difference of its inputs.
        let rule = "must have at least one look of the difference, none of them empty";
        let are_looks = entry.shows.iter().chain(&entry.follows).all(|look| !look.trim().is_empty());
        file.require(!entry.shows.is_empty() && are_looks, at!["differences", i, "shows"], rule);
        end_and_address(file, "differences", i, &entry.issue, &entry.expires);
    }
}

fn end_and_address(file: &mut Document<'_>, list: &'static str, i: usize, issue: &str, expires: &str) {
    let rule = "must be an https:// address where the failure is discussed";
    file.require(issue.starts_with("https://"), at![list, i, "issue"], rule);
    // Dates are compared as text, so 2027-3-1 is not accepted.
    let is_date = Date::from_str(expires).is_ok_and(|date| date.to_string() == expires);
    file.require(is_date, at![list, i, "expires"], "must be a day such as 2027-03-31");
}
