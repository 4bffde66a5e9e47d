//! Selects checks and profiles: `--check`, `--level`, `--suite`.

use std::collections::BTreeSet;

use model::Level;

use crate::check::Check;

/// The user's selection; empty lists select everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Ids, prefixes that end at a dot or anywhere (`watch.`, `storage.media`), or globs with `*`.
    pub checks: Vec<String>,
    /// Only this level and stronger ones.
    pub level: Option<Level>,
    pub suites: Vec<String>,
    /// Only these profiles.
    pub profiles: Vec<String>,
}

/// One check on one profile.
#[derive(Clone, Copy)]
pub struct Case {
    pub check: &'static Check,
    pub profile: &'static str,
}

/// A pattern or name that matches nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    pub what: &'static str,
    pub given: String,
    pub valid: Vec<String>,
}

impl std::error::Error for Unknown {}

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no {} matches `{}`; valid: {}", self.what, self.given, self.valid.join(", "))
    }
}

impl Case {
    pub fn name(&self) -> String {
        self.check.case(self.profile)
    }
}

impl Selection {
    /// The cases of the table `checks`, in its order. Each word must name something, and each pattern a check of these
    /// profiles, but together they may leave nothing.
    pub fn cases(&self, checks: impl Iterator<Item = &'static Check> + Clone) -> Result<Vec<Case>, Unknown> {
        let all = || checks.clone();
        let ids = || all().map(|check| check.id.to_owned());
        self.known("check", &self.checks, ids, |pattern| all().any(|check| matches(pattern, check.id)))?;
        let suites = || all().map(|check| check.suite().to_owned());
        self.known("suite", &self.suites, suites, |suite| all().any(|check| check.suite() == suite))?;
        let profiles = || all().flat_map(|check| check.profiles).map(|profile| (*profile).to_owned());
        self.known("profile", &self.profiles, profiles, |name| all().any(|c| c.profiles.contains(&name)))?;
        for pattern in &self.checks {
            let named = || all().filter(|check| matches(pattern, check.id));
            if !named().any(|check| self.cases_of(check).next().is_some()) {
                let profiles: BTreeSet<&str> = named().flat_map(|check| check.profiles.iter().copied()).collect();
                let valid = profiles.into_iter().map(str::to_owned).collect();
                return Err(Unknown { what: "profile given with --profile", given: pattern.clone(), valid });
            }
        }
        Ok(all().filter(|check| self.wants(check)).flat_map(|check| self.cases_of(check)).collect())
    }

    fn known<I: Iterator<Item = String>>(
        &self,
        what: &'static str,
        given: &[String],
        valid: impl Fn() -> I,
        exists: impl Fn(&str) -> bool,
    ) -> Result<(), Unknown> {
        match given.iter().find(|word| !exists(word)) {
            None => Ok(()),
            Some(word) => {
                let valid: BTreeSet<String> = valid().collect();
                Err(Unknown { what, given: word.clone(), valid: valid.into_iter().collect() })
            }
        }
    }

    fn wants(&self, check: &Check) -> bool {
        let by_id = self.checks.is_empty() || self.checks.iter().any(|pattern| matches(pattern, check.id));
        let by_suite = self.suites.is_empty() || self.suites.iter().any(|suite| suite == check.suite());
        let by_level = self.level.is_none_or(|level| check.level <= level);
        by_id && by_suite && by_level
    }

    fn cases_of(&self, check: &'static Check) -> impl Iterator<Item = Case> {
        let wanted = |profile: &&str| self.profiles.is_empty() || self.profiles.iter().any(|p| p == profile);
        check.profiles.iter().copied().filter(wanted).map(move |profile| Case { check, profile })
    }
}

/// Matches a glob if the pattern contains `*`, otherwise the id itself or a prefix of it.
fn matches(pattern: &str, id: &str) -> bool {
    match pattern.split_once('*') {
        None => id.starts_with(pattern),
        Some((head, rest)) => {
            let Some(tail) = id.strip_prefix(head) else { return false };
            (0..=tail.len()).any(|skipped| tail.is_char_boundary(skipped) && matches_to_end(rest, &tail[skipped..]))
        }
    }
}

/// The rest of a glob must reach the end of the id.
fn matches_to_end(pattern: &str, text: &str) -> bool {
    if pattern.contains('*') { matches(pattern, text) } else { pattern == text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_checks::CHECKS;

    #[test]
    fn patterns_are_ids_prefixes_or_globs() {
        for (pattern, id, expected) in [
            ("watch.ordered", "watch.ordered", true),
            ("watch.", "watch.ordered", true),
            ("storage.media", "storage.media-type-json", true),
            ("*.media-type-*", "storage.media-type-json", true),
            ("*json", "storage.media-type-json", true),
            ("*media", "storage.media-type-json", false),
            ("rv.*too*", "rv.too-large-504", true),
            ("list", "watch.ordered", false),
        ] {
            assert_eq!(matches(pattern, id), expected, "{pattern} {id}");
        }
    }

    #[test]
    fn unknown_words_are_errors_that_list_valid_words() {
        let selection = Selection { suites: vec!["wach".into()], ..Selection::default() };
        let Err(error) = selection.cases(CHECKS.iter()) else { panic!("`wach` is no suite") };
        assert!(error.to_string().contains("`wach`") && error.to_string().contains("watch"), "{error}");
    }

    #[test]
    fn each_pattern_names_a_check_of_the_profiles() {
        let other =
            CHECKS.iter().find(|check| !check.profiles.contains(&"default")).expect("a check of another profile");
        let mut selection =
            Selection { checks: vec![other.id.into()], profiles: vec!["default".into()], ..Selection::default() };
        let Err(error) = selection.cases(CHECKS.iter()) else { panic!("{} is not on `default`", other.id) };
        assert!(error.to_string().contains(other.id) && error.to_string().contains(other.profiles[0]), "{error}");
        selection.profiles.push(other.profiles[0].into());
        assert_eq!(selection.cases(CHECKS.iter()).map(|cases| cases.len()), Ok(1));
    }

    #[test]
    fn level_includes_stronger_levels() {
        let count = |level| Selection { level, ..Selection::default() }.cases(CHECKS.iter()).unwrap().len();
        let counts = [Some(Level::Must), Some(Level::Should), Some(Level::Extra), None].map(count);
        assert!(counts[0] < counts[1] && counts[1] < counts[2] && counts[2] == counts[3], "{counts:?}");
    }
}
