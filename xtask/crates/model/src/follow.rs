//! Sets that follow another set: their releases that belong to a release of that set.

use std::collections::BTreeMap;

use crate::artifact::Source;
use crate::target::{Components, minor_numbers, minor_of};

impl Components {
    /// Adds the releases of the sets that follow a set with a given release: those with the same number of the minor, as
    /// client-go 0.36 belongs to Kubernetes 1.36. Sets with a source keep it. Without such a release, and for a checkout or
    /// existing binaries, whose minor is known only after the build, it stays the default release.
    pub fn add_followers(&self, sources: &mut BTreeMap<String, Source>) {
        let followers = self.sets.iter().filter(|set| !sources.contains_key(&set.name)).filter_map(|set| {
            let Some(Source::Module(Some(version))) = sources.get(set.follows.as_ref()?) else { return None };
            let minor = number(&minor_of(version))?;
            let release = set.releases.iter().find(|release| number(&release.minor) == Some(minor))?;
            Some((set.name.clone(), Source::Module(Some(format!("v{}", release.minor)))))
        });
        let followers: Vec<(String, Source)> = followers.collect();
        sources.extend(followers);
    }
}

/// 36 of `1.36`.
fn number(minor: &str) -> Option<u32> {
    minor_numbers(minor).map(|(_, minor)| minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follower_has_the_minor_of_the_set_that_it_follows() {
        let text = r#"{"groups": [], "sets": [
            {"name": "kubernetes", "main_module": "k", "ldflags": [], "components": []},
            {"name": "client", "main_module": "c", "ldflags": [], "components": [], "follows": "kubernetes", "releases": [
                {"minor": "0.37", "version": "v0.37.2", "module": "client"},
                {"minor": "0.36", "version": "v0.36.5", "module": "client-0.36"}
            ]},
            {"name": "coredns", "main_module": "d", "ldflags": [], "components": [], "follows": "kubernetes"}
        ]}"#;
        let components: Components = serde_json::from_str(text).unwrap();
        let followed = |given: &[(&str, &str)]| {
            let parsed = given.iter().map(|(set, source)| ((*set).to_owned(), source.parse().unwrap()));
            let mut sources: BTreeMap<String, Source> = parsed.collect();
            components.add_followers(&mut sources);
            assert!(!sources.contains_key("coredns"), "it has one release");
            sources.get("client").map(Source::to_string)
        };
        for (kubernetes, client) in [
            ("1.36", Some("module:v0.36")),
            ("v1.36.0-rc.1", Some("module:v0.36")),
            ("1.37.1", Some("module:v0.37")),
            ("1.38.0", None),
            ("module", None),
            ("checkout:/k", None),
            ("prebuilt:/k", None),
        ] {
            assert_eq!(followed(&[("kubernetes", kubernetes)]).as_deref(), client, "{kubernetes}");
        }
        assert_eq!(followed(&[("kubernetes", "1.36"), ("client", "0.37")]).as_deref(), Some("module:v0.37"));
        assert_eq!(followed(&[("kubernetes", "1.36"), ("client", "module")]).as_deref(), Some("module"));
        assert_eq!(followed(&[]), None);
    }
}
