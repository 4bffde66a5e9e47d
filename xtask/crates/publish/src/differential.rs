//! Reports of differential runs, as `cargo xtask differential` writes them: parsed for the site.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use cli::Paths;
use model::ExpectedDifference;
use serde_json::Value;
use sys::foreign;

use crate::run_folders;

/// The files of both levels.
const FILES: [&str; 2] = ["differential.json", "live.json"];
/// Largest report in bytes.
const LARGEST: u64 = 256 << 20;
/// Folder levels below a named folder: artifact, common folder, run.
const DEPTH: usize = 3;

/// One differential run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Differential {
    /// The name of its folder.
    pub id: String,
    /// `library`, `live`.
    pub level: String,
    /// GOARCH, and how it was executed if that is known.
    pub tested: String,
    pub reference: String,
    pub seed: Option<u64>,
    pub started: String,
    pub seconds: f64,
    /// Inputs of the library level, requests of the live level.
    pub inputs: u64,
    pub groups: Vec<DifferenceGroup>,
    /// Subjects whose answers vary on one architecture.
    pub unstable: Vec<String>,
    /// Why requests of the live level have no answer to compare.
    pub errors: Vec<String>,
}

/// Differences with one cause.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DifferenceGroup {
    pub subject: String,
    pub class: String,
    pub shape: String,
    pub count: u64,
    /// The smallest input, or the requests of the shortest sequence.
    pub input: String,
    pub reference: String,
    pub tested: String,
    /// Place, value of the reference, value under test.
    pub changes: Vec<[String; 3]>,
    /// None: the group is new.
    pub expected: Option<ExpectedDifference>,
    pub repeat: String,
}

impl Differential {
    /// # Errors
    /// The text is not the JSON of a report.
    pub(crate) fn parse(id: &str, file: &str, bytes: &[u8]) -> anyhow::Result<Differential> {
        let json: Value = serde_json::from_slice(bytes).context("not JSON")?;
        let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        let or = |text: String, other: String| if text.is_empty() { other } else { text };
        ensure!(json["groups"].is_array() && json["arch"].is_string(), "not the report of a differential run");
        let level = if file == FILES[1] { "live" } else { "library" };
        let inputs = json["inputs"].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum();
        let all = items(&json["groups"]);
        Ok(Differential {
            id: id.to_owned(),
            level: or(text("level"), level.into()),
            tested: or(text("tested"), text("arch")),
            reference: or(text("reference"), text("against")),
            seed: json["seed"].as_u64(),
            started: text("started"),
            seconds: json["seconds"].as_f64().unwrap_or_default(),
            inputs: json["cases"].as_u64().unwrap_or(inputs),
            groups: all.enumerate().map(|(i, group)| DifferenceGroup::of(i, group, &text("arch"))).collect(),
            unstable: unstable(&json),
            errors: items(&json["errors"]).map(as_text).collect(),
        })
    }

    pub(crate) fn new_groups(&self) -> usize {
        self.groups.iter().filter(|group| group.expected.is_none()).count()
    }

    /// None for a run that only replayed a few inputs.
    pub(crate) fn per_second(&self) -> Option<f64> {
        /// Below it, the start of the programs dominates.
        const LEAST: u64 = 1000;
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let rate = self.inputs as f64 / self.seconds;
        (self.inputs >= LEAST && self.seconds > 0.0).then_some(rate)
    }
}

impl DifferenceGroup {
    fn of(index: usize, json: &Value, arch: &str) -> DifferenceGroup {
        let text = |name: &str| as_text(&json[name]);
        let subject = text("subject");
        let file = format!("inputs/{:03}-{subject}.json", index + 1);
        let repeat = match json["repeat"].as_str() {
            Some(command) => command.to_owned(),
            None => format!("cargo xtask differential --arch {arch} --input {file}"),
        };
        let requests: Vec<String> = items(&json["requests"]).map(request).collect();
        DifferenceGroup {
            class: text("class"),
            shape: items(&json["shape"]).map(as_text).collect::<Vec<String>>().join(", "),
            count: json["count"].as_u64().unwrap_or_default(),
            input: if requests.is_empty() { text("input") } else { requests.join("\n") },
            reference: answer(&json["reference"]),
            tested: answer(&json["tested"]),
            changes: items(&json["changes"]).map(change).collect(),
            expected: serde_json::from_value(json["expected"].clone()).unwrap_or_default(),
            repeat,
            subject,
        }
    }
}

/// Subjects at the library level, resources of examples at the others.
fn unstable(json: &Value) -> Vec<String> {
    let resources = items(&json["nondeterministic"]["examples"]).map(|example| &example["resource"]);
    let all: BTreeSet<String> = items(&json["unstable"]).chain(resources).map(as_text).collect();
    all.into_iter().collect()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// A text as it is, anything else as JSON; empty for null.
fn as_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `PATCH /path?query` and the body.
fn request(json: &Value) -> String {
    let text = |name: &str| as_text(&json[name]);
    let query = if text("query").is_empty() { String::new() } else { format!("?{}", text("query")) };
    format!("{} {}{query} {} {}", text("verb"), text("path"), text("content_type"), text("body")).trim_end().to_owned()
}

/// The answer of a library is text; that of a server has a status and a body.
fn answer(json: &Value) -> String {
    match json {
        Value::Object(answer) if answer.contains_key("body") => {
            format!("{} {}", as_text(&json["status"]), as_text(&json["body"]))
        }
        other => as_text(other),
    }
}

/// The library level calls the sides `left` and `right`.
fn change(json: &Value) -> [String; 3] {
    let either = |a: &str, b: &str| as_text(if json[a].is_null() { &json[b] } else { &json[a] });
    [either("path", "place"), either("left", "reference"), either("right", "tested")]
}

/// The differential runs that the arguments name, or that are in folders that they name.
pub(crate) fn read_all(paths: &Paths, words: &[String]) -> anyhow::Result<Vec<Differential>> {
    let mut files: Vec<PathBuf> = Vec::new();
    for word in words {
        let candidates = [PathBuf::from(word), paths.reports.join(word)];
        if let Some(folder) = candidates.into_iter().find(|folder| folder.is_dir()) {
            search(&folder.canonicalize()?, DEPTH, &mut files)?;
        }
    }
    files.sort();
    files.dedup();
    files.iter().map(|file| read(file)).collect()
}

/// Whether the argument names differential runs, which have no events, and no other run.
pub(crate) fn is_only(paths: &Paths, word: &str) -> bool {
    let words = [word.to_owned()];
    let others = run_folders::folders(paths, &words).is_ok_and(|runs| !runs.is_empty());
    !others && read_all(paths, &words).is_ok_and(|runs| !runs.is_empty())
}

fn read(file: &Path) -> anyhow::Result<Differential> {
    let name = |path: Option<&Path>| path.and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    let bytes = foreign::read(file, LARGEST)?;
    Differential::parse(&name(file.parent()), &name(Some(file)), &bytes)
        .with_context(|| format!("failed to read {}", file.display()))
}

fn search(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    found.extend(FILES.iter().map(|name| folder.join(name)).filter(|file| file.is_file()));
    if depth > 0 {
        for inner in foreign::folders(folder)? {
            search(&inner, depth - 1, found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const LIBRARY: &str = r#"{"level":"library","reference":"one, native","tested":"two, qemu","arch":"two",
        "against":"one","seed":7,"started":"2026-11-26T15:00:00Z","seconds":2.0,"inputs":{"a":3000,"b":1000},
        "groups":[
          {"subject":"a","class":"c","shape":["answer/error"],"count":3,"index":1,"input":"{\"n\":1e30}",
           "reference":"{\"n\":0}","tested":"{\"error\":\"<x>\"}","changes":[{"path":".n","left":"0","right":null}],
           "expected":{"subject":"a","classes":["c"],"arch":[],"reason":"why","issue":"https://example.org/1","expires":"2027-01-01"}},
          {"subject":"b","class":"","shape":[".x number"],"count":1,"index":null,"input":"1","reference":"2",
           "tested":"3","changes":[],"expected":null}],
        "unstable":["c"]}"#;

    pub(crate) const LIVE: &str = r#"{"arch":"two","against":"one","seed":9,"cases":500,"seconds":10,"groups":[
          {"expected":null,"subject":"live.patch","class":"integer","shape":["answer/answer"],"count":2,
           "requests":[{"verb":"PATCH","path":"/a","query":"x=y","content_type":"t","body":"{}"}],
           "changes":[{"place":"body .n","reference":"1","tested":"2"}],
           "reference":{"status":200,"headers":{},"body":"{\"n\":1}"},"tested":{"status":200,"headers":{},"body":"{}"},
           "repeat":"cargo xtask differential --level live"}],
           "nondeterministic":{"sequences":1,"examples":[{"case":3,"resource":"/api/v1/pods","places":["status"]}]},
           "errors":["case 4: no answer"]}"#;

    #[test]
    fn reports_of_both_levels_are_read() {
        let library = Differential::parse("r1", "differential.json", LIBRARY.as_bytes()).unwrap();
        assert_eq!((library.inputs, library.per_second(), library.new_groups()), (4000, Some(2000.0), 1));
        let group = &library.groups[0];
        assert_eq!(group.repeat, "cargo xtask differential --arch two --input inputs/001-a.json");
        assert_eq!(group.changes, [[".n".to_owned(), "0".into(), String::new()]]);
        assert_eq!(group.expected.as_ref().unwrap().reason, "why");
        let live = Differential::parse("r2", "live.json", LIVE.as_bytes()).unwrap();
        assert_eq!(
            (live.level.as_str(), live.tested.as_str(), live.inputs, live.per_second()),
            ("live", "two", 500, None)
        );
        assert_eq!(live.unstable, ["/api/v1/pods"]);
        assert_eq!(live.errors, ["case 4: no answer"]);
        assert_eq!(live.groups[0].input, "PATCH /a?x=y t {}");
        assert_eq!(live.groups[0].reference, r#"200 {"n":1}"#);
    }

    #[test]
    fn other_files_are_refused() {
        for text in ["", "{}", r#"{"groups":[]}"#, "[]"] {
            assert!(Differential::parse("r", "differential.json", text.as_bytes()).is_err(), "{text}");
        }
    }
}
