//! Parses the texts of all files into a catalogue, or into all problems of all files.

use std::collections::BTreeMap;
use std::path::Path;

use model::{
    Components, Durations, Expectation, ExpectedDifference, GoldenValue, Images, MatrixData, Profile, Regression,
    StoredResource, Target,
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
const REGRESSIONS: &str = "regressions.yaml";
const REQUESTS: &str = "requests.yaml";
const RESOURCES: &str = "resources/";
const RUNNERS: &str = "runners.yaml";
const TOOLCHAINS: &str = "toolchains.yaml";
const UPSTREAM: &str = "upstream.yaml";
const UPSTREAMS: &str = "upstreams.yaml";

/// The files that are read by name.
const TOP: [&str; 14] = [
    COMPONENTS,
    DURATIONS,
    EXPECTATIONS,
    IMAGES,
    KIND,
    MATRIX,
    NODE,
    PROFILES,
    REGRESSIONS,
    REQUESTS,
    RUNNERS,
    TOOLCHAINS,
    UPSTREAM,
    UPSTREAMS,
];

/// `targets/profiles.yaml`.
#[derive(Deserialize)]
struct Profiles {
    profiles: Vec<Profile>,
}

/// `targets/expectations.yaml`.
#[derive(Deserialize)]
struct Expectations {
    expectations: Vec<Expectation>,
    #[serde(default)]
    differences: Vec<ExpectedDifference>,
}

/// `targets/regressions.yaml`.
#[derive(Deserialize)]
struct Regressions {
    regressions: Vec<Regression>,
}

/// `targets/resources/<minor>.yaml`.
#[derive(Deserialize)]
struct Resources {
    /// An older release, whose rows are also those of this one, except for the given rows.
    base: Option<String>,
    #[serde(default)]
    resources: Vec<StoredResource>,
}

/// `targets/golden/<minor>.yaml`.
#[derive(Deserialize)]
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
        let mut parser = Parser { label, files, problems: Vec::new() };
        let catalogue = parser.catalogue();
        let Parser { mut problems, .. } = parser;
        problems.sort();
        catalogue.filter(|_| problems.is_empty()).ok_or(Invalid { problems })
    }

    /// Parses a file like `targets/durations.yaml` from another folder; problems name it as `name`.
    pub fn parse_durations(name: &str, text: &str) -> Result<Durations, Invalid> {
        let (content, problems) = parsed(name.to_owned(), text, rules::durations);
        content.filter(|_| problems.is_empty()).ok_or(Invalid { problems })
    }
}

struct Parser<'a> {
    label: &'a str,
    files: &'a Files,
    problems: Vec<Problem>,
}

impl<'a> Parser<'a> {
    /// None if a file does not have the right form. The rules of a file get None instead of another file's content if
    /// that does not have the right form.
    fn catalogue(&mut self) -> Option<Catalogue> {
        let files = self.files;
        let architectures = self.architectures();
        self.names();
        let components = self.file(COMPONENTS, |file, content| rules::components(file, content, files));
        let resources = self.tables(
            RESOURCES,
            |file: &Resources| (&file.base, &file.resources),
            rules::resources,
            rules::same_resource,
        );
        let golden = self.tables(GOLDEN, |file: &Golden| (&file.base, &file.values), rules::golden, rules::same_value);
        let profiles = self.profiles(&resources, components.as_ref());
        let known = profiles.as_deref();
        let matrix = self.file(MATRIX, |file, content| rules::matrix(file, content, &architectures, known));
        let targets = self.targets(components.as_ref(), matrix.as_ref());
        let runners =
            self.file(RUNNERS, |file, content| rules::runners(file, content, &architectures, matrix.as_ref()));
        let requests = self.file(REQUESTS, |file, content| rules::requests(file, content, runners.as_ref()));
        let durations = self.file(DURATIONS, rules::durations);
        let variants = targets.iter().flat_map(Target::variant_labels).collect::<Vec<String>>();
        let labels = architectures.iter().copied().chain(variants.iter().map(String::as_str)).collect::<Vec<&str>>();
        let expectations = self.file(EXPECTATIONS, |file, content: &Expectations| {
            rules::expectations(file, &content.expectations, &labels, known);
            rules::differences(file, &content.differences, &labels);
        });
        let toolchains = self.file(TOOLCHAINS, |file, content| rules::toolchains(file, content, &architectures));
        let images = self.images(components.as_ref());
        // A faulty name in those files would be reported here a second time.
        let sound = self.problems.is_empty();
        let others = rules::Others {
            components: components.as_ref().filter(|_| sound),
            images: images.as_ref().filter(|_| sound),
            profiles: known.filter(|_| sound),
        };
        let node = self.file(NODE, |file, content| rules::node(file, content, others));
        let kind = self.file(KIND, |file, content| rules::kind(file, content, others));
        let upstream = self.file(UPSTREAM, |file, content| rules::upstream(file, content, others));
        let known = components.as_ref().filter(|_| sound);
        let upstreams = self.file(UPSTREAMS, |file, content| rules::upstreams(file, content, known));
        let regressions = self.file(REGRESSIONS, |file, content: &Regressions| {
            rules::regressions(file, &content.regressions, others.components, others.profiles);
        });
        Some(Catalogue {
            targets,
            resources,
            golden,
            components: components?,
            profiles: profiles?,
            durations: durations?,
            differences: expectations.as_ref().map(|file| file.differences.clone()).unwrap_or_default(),
            expectations: expectations?.expectations,
            matrix: matrix?,
            images: images?,
            node: node?,
            kind: kind?,
            runners: runners?,
            requests: requests?,
            toolchains: toolchains?,
            upstream: upstream?,
            upstreams: upstreams?,
            regressions: regressions?.regressions,
        })
    }

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

    /// The table of each release: the rows of its base, replaced by its own rows for the same thing, and its other rows.
    fn tables<F: DeserializeOwned, T: Clone>(
        &mut self,
        folder: &str,
        parts: fn(&F) -> (&Option<String>, &Vec<T>),
        rules: fn(&mut Document<'_>, &[T], &[T]),
        same: fn(&T, &T) -> bool,
    ) -> BTreeMap<String, Vec<T>> {
        let mut tables: BTreeMap<String, Vec<T>> = BTreeMap::new();
        for (name, minor) in self.releases(folder) {
            let mut table = Vec::new();
            let check = |file: &mut Document<'_>, content: &F| {
                let (base, rows) = parts(content);
                let base = rules::base(file, minor, base.as_deref(), &tables);
                rules(file, rows, base);
                table = base.to_vec();
                for row in rows {
                    match table.iter_mut().find(|old| same(old, row)) {
                        Some(old) => *old = row.clone(),
                        None => table.push(row.clone()),
                    }
                }
            };
            if self.file(name, check).is_some() {
                tables.insert(minor.to_owned(), table);
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

    /// See [`parsed`].
    fn file<T: DeserializeOwned>(&mut self, name: &str, rules: impl FnOnce(&mut Document<'_>, &T)) -> Option<T> {
        let Some(text) = self.files.get(name) else {
            self.refuse(name, "missing; restore it from version control");
            return None;
        };
        let (content, problems) = parsed(format!("{}/{name}", self.label), text, rules);
        self.problems.extend(problems);
        content
    }

    fn refuse(&mut self, name: &str, rule: impl Into<String>) {
        self.problems.push(Problem::of_file(self.label, name, rule.into()));
    }
}

/// The content of one file, checked by its rules, and its problems. No content if it does not have the right form.
fn parsed<T: DeserializeOwned>(
    name: String,
    text: &str,
    rules: impl FnOnce(&mut Document<'_>, &T),
) -> (Option<T>, Vec<Problem>) {
    let mut file = match Document::parse(name, text) {
        Ok(file) => file,
        Err(problem) => return (None, vec![problem]),
    };
    let content = file.decode();
    if let Some(content) = &content {
        rules(&mut file, content);
    }
    (content, file.into_problems())
}
