//! Parses the texts of all files into a catalogue, or into all problems of all files.

use std::collections::BTreeMap;
use std::path::Path;

use model::{
    Components, Durations, Expectation, GoldenValue, Images, MatrixData, Node, NodeImage, Profile, RequestData,
    RunnerData, StoredResource, Target, Upstream,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::catalogue::Catalogue;
use crate::document::Document;
use crate::problem::{Invalid, Problem};
use crate::read::{Files, read};
use crate::rules;

/// The folder of the architectures, one file each.
const ARCHITECTURES: &str = "architectures/";
const COMPONENTS: &str = "components.yaml";
const DURATIONS: &str = "durations.yaml";
const EXPECTATIONS: &str = "expectations.yaml";
const GOLDEN: &str = "golden/";
const IMAGES: &str = "images.yaml";
const KIND: &str = "kind.yaml";
const MATRIX: &str = "matrix.yaml";
const NODE: &str = "node.yaml";
const PROFILES: &str = "profiles.yaml";
const REQUESTS: &str = "requests.yaml";
const RESOURCES: &str = "resources/";
const RUNNERS: &str = "runners.yaml";
const UPSTREAM: &str = "upstream.yaml";

/// The files that are read by name.
const TOP: [&str; 11] =
    [COMPONENTS, DURATIONS, EXPECTATIONS, IMAGES, KIND, MATRIX, NODE, PROFILES, REQUESTS, RUNNERS, UPSTREAM];

/// `targets/profiles.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Profiles {
    profiles: Vec<Profile>,
}

/// `targets/expectations.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectations {
    expectations: Vec<Expectation>,
}

/// `targets/resources/<minor>.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resources {
    /// An older release, whose rows are also those of this one, except for the given rows.
    base: Option<String>,
    #[serde(default)]
    resources: Vec<StoredResource>,
}

/// `targets/golden/<minor>.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden {
    /// See [`Resources::base`].
    base: Option<String>,
    #[serde(default)]
    values: Vec<GoldenValue>,
}

impl Catalogue {
    /// Reads and parses the folder `targets/`. Problems name its files as `targets/NAME`, wherever the folder is.
    pub fn load(dir: &Path) -> Result<Catalogue, Invalid> {
        let label =
            dir.file_name().map_or_else(|| dir.display().to_string(), |name| name.to_string_lossy().into_owned());
        let (files, problems) = read(dir, &label);
        // A file that could not be read would be reported a second time, as missing.
        if problems.is_empty() { Self::parse(&label, &files) } else { Err(Invalid { problems }) }
    }

    /// Parses the texts of the files; `label` precedes their names in problems.
    pub fn parse(label: &str, files: &Files) -> Result<Catalogue, Invalid> {
        parse(label, files)
    }

    /// Parses a file like `targets/durations.yaml` from another folder; problems name it as `name`.
    pub fn parse_durations(name: &str, text: &str) -> Result<Durations, Invalid> {
        parse_durations(name, text)
    }
}

fn parse(label: &str, files: &Files) -> Result<Catalogue, Invalid> {
    let mut parser = Parser { label, files, problems: Vec::new() };
    parser.names();
    let components = parser.components();
    let resources = parser.resources();
    let golden = parser.golden();
    let profiles = parser.profiles(&resources, components.as_ref());
    let matrix = parser.matrix(profiles.as_deref());
    let targets = parser.targets(components.as_ref(), matrix.as_ref());
    let runners = parser.runners(matrix.as_ref());
    let requests = parser.requests(runners.as_ref());
    let durations = parser.file(DURATIONS, rules::durations);
    let expectations = parser.expectations(profiles.as_deref());
    let images = parser.images(components.as_ref());
    // A faulty name in those files would be reported here a second time.
    let sound = parser.problems.is_empty();
    let others = rules::Others {
        components: components.as_ref().filter(|_| sound),
        images: images.as_ref().filter(|_| sound),
        profiles: profiles.as_deref().filter(|_| sound),
    };
    let node = parser.file(NODE, |file: &mut Document<'_>, content: &Node| rules::node(file, content, others));
    let kind = parser.file(KIND, |file: &mut Document<'_>, content: &NodeImage| rules::kind(file, content, others));
    let upstream = parser.file(UPSTREAM, |file: &mut Document<'_>, content: &Upstream| {
        rules::upstream(file, content, others);
    });
    let Parser { mut problems, .. } = parser;
    problems.sort();
    match (components, profiles, durations, expectations, matrix, images, node, kind, runners, requests, upstream) {
        (
            Some(components),
            Some(profiles),
            Some(durations),
            Some(expectations),
            Some(matrix),
            Some(images),
            Some(node),
            Some(kind),
            Some(runners),
            Some(requests),
            Some(upstream),
        ) if problems.is_empty() => Ok(Catalogue {
            targets,
            components,
            profiles,
            resources,
            golden,
            durations,
            expectations,
            matrix,
            images,
            node,
            kind,
            runners,
            requests,
            upstream,
        }),
        _ => Err(Invalid { problems }),
    }
}

struct Parser<'a> {
    label: &'a str,
    files: &'a Files,
    problems: Vec<Problem>,
}

impl<'a> Parser<'a> {
    fn names(&mut self) {
        for name in self.files.keys().filter(|name| name.ends_with(".yml")) {
            self.refuse(name, "must be named .yaml; other names are not read");
        }
        let unknown = |name: &&String| name.ends_with(".yaml") && !name.contains('/') && !TOP.contains(&name.as_str());
        for name in self.files.keys().filter(unknown) {
            self.refuse(
                name,
                format!("unknown; valid: {}; an architecture belongs in {ARCHITECTURES}", TOP.join(", ")),
            );
        }
        if self.architectures().is_empty() {
            self.refuse("", format!("has no architecture; add {ARCHITECTURES}NAME.yaml"));
        }
    }

    fn components(&mut self) -> Option<Components> {
        let files = self.files;
        self.file(COMPONENTS, |file, content: &Components| rules::components(file, content, files))
    }

    /// The architectures of all files that have the right form, sorted by name. `components` and `matrix` are None if
    /// their file has problems.
    fn targets(&mut self, components: Option<&Components>, matrix: Option<&MatrixData>) -> Vec<Target> {
        let mut targets: Vec<Target> = Vec::new();
        for (name, stem) in self.folder(ARCHITECTURES) {
            let check = |file: &mut Document<'_>, content: &Target| {
                rules::target(file, stem, content, components, &targets);
                // For a misnamed file, each of its jobs would repeat the same problem.
                if let Some(matrix) = matrix.filter(|_| content.name == stem) {
                    rules::ci(file, content, matrix);
                }
            };
            let target = self.file(name, check);
            targets.extend(target);
        }
        targets.sort_by(|a, b| a.name.cmp(&b.name));
        targets
    }

    fn resources(&mut self) -> BTreeMap<String, Vec<StoredResource>> {
        let mut tables = BTreeMap::new();
        for (name, minor) in self.releases(RESOURCES) {
            let check = |file: &mut Document<'_>, content: &Resources| {
                let base = rules::base(file, minor, content.base.as_deref(), &tables);
                rules::resources(file, &content.resources, base);
            };
            if let Some(Resources { base, resources }) = self.file(name, check) {
                let base = base.and_then(|base| tables.get(&base)).cloned().unwrap_or_default();
                tables.insert(minor.to_owned(), replaced(base, resources, rules::same_resource));
            }
        }
        tables
    }

    fn golden(&mut self) -> BTreeMap<String, Vec<GoldenValue>> {
        let mut tables = BTreeMap::new();
        for (name, minor) in self.releases(GOLDEN) {
            let check = |file: &mut Document<'_>, content: &Golden| {
                let base = rules::base(file, minor, content.base.as_deref(), &tables);
                rules::golden(file, &content.values, base);
            };
            if let Some(Golden { base, values }) = self.file(name, check) {
                let base = base.and_then(|base| tables.get(&base)).cloned().unwrap_or_default();
                tables.insert(minor.to_owned(), replaced(base, values, rules::same_value));
            }
        }
        tables
    }

    fn profiles(
        &mut self,
        resources: &BTreeMap<String, Vec<StoredResource>>,
        components: Option<&Components>,
    ) -> Option<Vec<Profile>> {
        let built_in = resources.values().flatten();
        let programs = components.into_iter().flat_map(|all| &all.sets).flat_map(|set| &set.components);
        let programs: Vec<&str> = programs.map(|component| component.name.as_str()).collect();
        let check = |file: &mut Document<'_>, content: &Profiles| {
            rules::profiles(file, &content.profiles, &programs, built_in);
        };
        self.file(PROFILES, check).map(|content| content.profiles)
    }

    /// `profiles` are None if their file has problems.
    fn matrix(&mut self, profiles: Option<&[Profile]>) -> Option<MatrixData> {
        let architectures = self.architectures();
        let check = |file: &mut Document<'_>, content: &MatrixData| {
            rules::matrix(file, content, &architectures, profiles);
        };
        self.file(MATRIX, check)
    }

    /// `matrix` is None if its file has problems.
    fn runners(&mut self, matrix: Option<&MatrixData>) -> Option<RunnerData> {
        let architectures = self.architectures();
        let check = |file: &mut Document<'_>, content: &RunnerData| {
            rules::runners(file, content, &architectures, matrix);
        };
        self.file(RUNNERS, check)
    }

    /// `runners` is None if its file has problems.
    fn requests(&mut self, runners: Option<&RunnerData>) -> Option<RequestData> {
        self.file(REQUESTS, |file, content: &RequestData| rules::requests(file, content, runners))
    }

    /// `profiles` are None if their file has problems.
    fn expectations(&mut self, profiles: Option<&[Profile]>) -> Option<Vec<Expectation>> {
        let targets = self.architectures();
        let check = |file: &mut Document<'_>, content: &Expectations| {
            rules::expectations(file, &content.expectations, &targets, profiles);
        };
        self.file(EXPECTATIONS, check).map(|content| content.expectations)
    }

    /// `components` are None if their file has problems.
    fn images(&mut self, components: Option<&Components>) -> Option<Images> {
        let architectures = self.architectures();
        let mut images = self.file(IMAGES, |file, content: &Images| rules::images(file, content, components))?;
        // Adding a target does not require an edit of this list: the target's own file describes its programs.
        images.foreign.retain(|platform| !architectures.contains(&platform.architecture.as_str()));
        Some(images)
    }

    /// The names of the architectures' files, valid or not.
    fn architectures(&self) -> Vec<&'a str> {
        self.folder(ARCHITECTURES).into_iter().map(|(_, stem)| stem).collect()
    }

    /// The YAML files in a folder: name and stem.
    fn folder(&self, folder: &str) -> Vec<(&'a str, &'a str)> {
        let stem = |name: &'a String| Some((name.as_str(), name.strip_prefix(folder)?.strip_suffix(".yaml")?));
        self.files.keys().filter_map(stem).collect()
    }

    /// The files in a folder that are named after a release, the oldest first.
    fn releases(&self, folder: &str) -> Vec<(&'a str, &'a str)> {
        let mut files = self.folder(folder);
        files.sort_by_key(|(_, minor)| rules::major_minor(minor));
        files
    }

    /// The content of one file, checked by its rules. None if it does not have the right form.
    fn file<T: DeserializeOwned>(&mut self, name: &str, rules: impl FnOnce(&mut Document<'a>, &T)) -> Option<T> {
        let Some(text) = self.files.get(name) else {
            self.refuse(name, "missing; restore it from version control");
            return None;
        };
        let mut file = match Document::parse(format!("{}/{name}", self.label), text) {
            Ok(file) => file,
            Err(problem) => {
                self.problems.push(problem);
                return None;
            }
        };
        let content = file.decode();
        if let Some(content) = &content {
            rules(&mut file, content);
        }
        self.problems.extend(file.into_problems());
        content
    }

    fn refuse(&mut self, name: &str, rule: impl Into<String>) {
        let file = if name.is_empty() { self.label.to_owned() } else { format!("{}/{name}", self.label) };
        self.problems.push(Problem { file, line: 0, column: 0, path: String::new(), rule: rule.into() });
    }
}

fn parse_durations(name: &str, text: &str) -> Result<Durations, Invalid> {
    let invalid = |problems| Invalid { problems };
    let mut file = Document::parse(name.to_owned(), text).map_err(|problem| invalid(vec![problem]))?;
    let content = file.decode();
    if let Some(content) = &content {
        rules::durations(&mut file, content);
    }
    let problems = file.into_problems();
    content.filter(|_| problems.is_empty()).ok_or(invalid(problems))
}

/// The base with its rows replaced by those for the same thing; the other rows are added.
fn replaced<T>(base: Vec<T>, rows: Vec<T>, same: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let mut table = base;
    for row in rows {
        match table.iter_mut().find(|old| same(old, &row)) {
            Some(old) => *old = row,
            None => table.push(row),
        }
    }
    table
}
