//! The whole of `targets/` as one value, with its lookups.

use std::collections::BTreeMap;

use model::{
    Component, ComponentSet, Components, Durations, Expectation, ExpectedDifference, GoldenValue, ImageRecipe, Images,
    MatrixData, Node, NodeImage, Profile, Regression, RequestData, RunnerData, StoredResource, Target, Toolchains,
    Upstream, Upstreams, is_minor, minor_of,
};
use serde::Serialize;

use crate::nearest::nearest;
use crate::problem::Unknown;
use crate::rules;

/// The content of `targets/`, without problems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Catalogue {
    /// Sorted by name.
    pub targets: Vec<Target>,
    pub components: Components,
    /// In the order of the file; `default` is one of them.
    pub profiles: Vec<Profile>,
    /// The storage table of each Kubernetes minor release: "1.36".
    pub resources: BTreeMap<String, Vec<StoredResource>>,
    /// The required bytes of stored values, by minor release; none for a release without a file.
    pub golden: BTreeMap<String, Vec<GoldenValue>>,
    pub durations: Durations,
    /// Expected failures.
    pub expectations: Vec<Expectation>,
    pub differences: Vec<ExpectedDifference>,
    pub matrix: MatrixData,
    pub images: Images,
    /// Additions that make a guest a node with containers.
    pub node: Node,
    /// The image of a Kind node.
    pub kind: NodeImage,
    /// The providers of the matrix's runners, and how the runners are made.
    pub runners: RunnerData,
    /// Application forms of providers.
    pub requests: RequestData,
    /// Defects of Go releases.
    pub toolchains: Toolchains,
    /// Upstream's end-to-end suite.
    pub upstream: Upstream,
    /// Branches of upstream that are tested every night.
    pub upstreams: Upstreams,
    /// Released versions with known defects, in the order of the file.
    pub regressions: Vec<Regression>,
}

impl Catalogue {
    /// The architecture with this name or alias.
    pub fn target(&self, name: &str) -> Result<&Target, Unknown> {
        let names = self.targets.iter().flat_map(|t| std::iter::once(&t.name).chain(&t.aliases));
        self.find_target("architecture", name, || nearest(name, names.map(String::as_str)))
    }

    /// The architecture of a machine whose `uname -m` prints `machine`.
    pub fn host_target(&self, machine: &str) -> Result<&Target, Unknown> {
        // A similar name is another architecture, not a misspelling by the kernel.
        self.find_target("host machine", machine, || None)
    }

    pub fn profile(&self, name: &str) -> Result<&Profile, Unknown> {
        find("profile", name, &self.profiles, |profile| &profile.name)
    }

    /// A released version with a known defect.
    pub fn regression(&self, id: &str) -> Result<&Regression, Unknown> {
        find("regression", id, &self.regressions, |regression| &regression.id)
    }

    /// `kubernetes`, `etcd`.
    pub fn set(&self, name: &str) -> Result<&ComponentSet, Unknown> {
        find("component set", name, &self.components.sets, |set| &set.name)
    }

    /// A program and its set.
    pub fn component(&self, name: &str) -> Result<(&ComponentSet, &Component), Unknown> {
        let all: Vec<_> =
            self.components.sets.iter().flat_map(|set| set.components.iter().map(move |c| (set, c))).collect();
        find("component", name, &all, |(_, component)| &component.name).copied()
    }

    /// An image by the last part of its name.
    pub fn image(&self, name: &str) -> Result<&ImageRecipe, Unknown> {
        find("image", name, &self.images.images, ImageRecipe::short_name)
    }

    /// The components of a set or a group.
    pub fn components_of(&self, name: &str) -> Result<Vec<String>, Unknown> {
        self.components.named(name).ok_or_else(|| {
            let groups = self.components.groups.iter().map(|group| &group.name);
            let names: Vec<&String> = groups.chain(self.components.sets.iter().map(|set| &set.name)).collect();
            Unknown {
                kind: "set or group of components",
                given: name.into(),
                nearest: nearest(name, names.iter().map(|name| name.as_str())).map(str::to_owned),
                valid: names.into_iter().cloned().collect(),
            }
        })
    }

    /// The storage table for a Kubernetes version: `v1.36.3`, `1.36.3` or `1.36`.
    pub fn resources(&self, version: &str) -> Result<&[StoredResource], Unknown> {
        let minor = minor_of(version);
        self.resources.get(&minor).map(Vec::as_slice).ok_or_else(|| Unknown {
            kind: "Kubernetes release",
            given: version.into(),
            nearest: None,
            valid: self.resources.keys().cloned().collect(),
        })
    }

    /// The storage table of the newest minor that is not newer than a Kubernetes version, else of the oldest, with that
    /// minor.
    pub fn nearest_resources(&self, version: &str) -> (&str, &[StoredResource]) {
        let number = |minor: &str| rules::major_minor(minor).unwrap_or_default();
        let wanted = rules::major_minor(&minor_of(version)).unwrap_or((u32::MAX, 0));
        let minors = || self.resources.iter().filter(|(minor, _)| number(minor) <= wanted);
        let found = minors().max_by_key(|(minor, _)| number(minor));
        let found = found.or_else(|| self.resources.iter().min_by_key(|(minor, _)| number(minor)));
        found.map_or(("none", &[]), |(minor, rows)| (minor.as_str(), rows.as_slice()))
    }

    /// The golden values for a Kubernetes version, given as for [`Catalogue::resources`]; empty if there are none.
    pub fn golden(&self, version: &str) -> &[GoldenValue] {
        self.golden.get(&minor_of(version)).map_or(&[], Vec::as_slice)
    }

    /// Refuses a minor release that no Go module of the set pins; other versions are resolved by the build.
    pub fn pinned(&self, set: &str, version: &str) -> Result<(), Unknown> {
        let set = self.set(set)?;
        if !is_minor(version) || set.release(version).is_some() {
            return Ok(());
        }
        let valid: Vec<String> = set.releases.iter().map(|release| release.minor.clone()).collect();
        Err(Unknown { kind: "release", given: format!("{} {}", set.name, minor_of(version)), nearest: None, valid })
    }

    fn find_target<'a>(
        &self,
        kind: &'static str,
        given: &str,
        nearest: impl FnOnce() -> Option<&'a str>,
    ) -> Result<&Target, Unknown> {
        let is_given = |target: &&Target| target.name == given || target.aliases.iter().any(|alias| alias == given);
        self.targets.iter().find(is_given).ok_or_else(|| Unknown {
            kind,
            given: given.into(),
            nearest: nearest().map(str::to_owned),
            valid: self.targets.iter().map(with_aliases).collect(),
        })
    }
}

fn with_aliases(target: &Target) -> String {
    if target.aliases.is_empty() {
        target.name.clone()
    } else {
        format!("{} ({})", target.name, target.aliases.join(", "))
    }
}

fn find<'a, T>(kind: &'static str, given: &str, all: &'a [T], name: impl Fn(&T) -> &str) -> Result<&'a T, Unknown> {
    all.iter().find(|item| name(item) == given).ok_or_else(|| Unknown {
        kind,
        given: given.into(),
        nearest: nearest(given, all.iter().map(&name)).map(str::to_owned),
        valid: all.iter().map(|item| name(item).to_owned()).collect(),
    })
}
