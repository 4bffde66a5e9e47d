//! A run in the layout of Prow, which TestGrid and Spyglass read: a folder for each build of a job, in a bucket.
//!
//! <https://docs.prow.k8s.io/docs/metadata-artifacts/>, and prow's `pkg/gcsupload`. The order of the objects is the
//! order in which they must appear: a build without `finished.json` is still running, and a reader that follows a
//! pointer to the latest build must find the complete build.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use model::Exit;
use report::text::pretty;
use report::view::{View, at};
use report::{Console, Options, Verbosity, verdict};
use serde::Serialize;

use crate::about;
use crate::record::Record;
use crate::site::plain_name;

/// The job that a run is a build of.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Job {
    /// Name of the job. It is part of every path.
    pub name: String,
    /// `ORG/NAME` of the repository under test, or of the repository that contains the test.
    pub repo: Option<String>,
    /// Full hash of the commit.
    pub commit: Option<String>,
    /// Number of a pull request of `repo`. The build is then a presubmit.
    pub pull: Option<u64>,
    /// `BUCKET[/PREFIX]`, for pointers that contain a complete address.
    pub bucket: Option<String>,
}

/// One object of the bucket, or one file of the folder.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    pub name: String,
    pub content_type: &'static str,
    pub bytes: Vec<u8>,
    /// A pointer: belongs to the job and is overwritten. All other objects belong to one build and are written once.
    pub pointer: bool,
}

/// <https://github.com/GoogleCloudPlatform/testgrid/blob/main/metadata/job.go>
#[derive(Serialize)]
struct Started<'a> {
    /// Seconds since 1970.
    timestamp: i64,
    node: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    repos: BTreeMap<&'a str, String>,
    #[serde(rename = "repo-commit", skip_serializing_if = "Option::is_none")]
    commit: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pull: Option<String>,
}

#[derive(Serialize)]
struct Finished<'a> {
    timestamp: i64,
    passed: bool,
    result: &'static str,
    metadata: BTreeMap<&'a str, String>,
}

/// All objects of the build, in the order in which they must be written.
pub(crate) fn prow(record: &Record, job: &Job) -> Result<Vec<Object>> {
    let view = View::of(&record.events);
    let start = seconds(view.started).context("the run has no valid start time, which is the name of the build")?;
    let build = start.to_string();
    let folder = folder(job, &build)?;
    let object = |name: &str, content_type, bytes| Object {
        name: format!("{folder}{name}"),
        content_type,
        bytes,
        pointer: false,
    };
    let mut objects = vec![
        object("started.json", JSON, pretty(&started(&view, job, start)).into_bytes()),
        object("build-log.txt", TEXT, build_log(record)),
    ];
    let junit = format!("artifacts/junit_{}_01.xml", plain_name(view.arch()).replace('_', "-"));
    objects.push(object(&junit, XML, report::junit(&record.events, &report::JunitOptions::default())?));
    objects.push(object("artifacts/summary.md", MARKDOWN, report::markdown(&record.events).into_bytes()));
    objects.push(object("artifacts/run.json", JSON, report::run_json(&record.events).into_bytes()));
    for (name, bytes) in &record.logs {
        objects.push(object(&format!("artifacts/logs/{name}"), TEXT, bytes.clone()));
    }
    for (name, picture) in &record.timelines {
        objects.push(object(&format!("artifacts/timelines/{name}"), SVG, picture.bytes().to_owned()));
    }
    let end = record.events.last().and_then(|event| seconds(at(event))).unwrap_or(start).max(start);
    objects.push(object("finished.json", JSON, pretty(&finished(record, &view, job, end)).into_bytes()));
    objects.extend(pointers(job, &build, &folder));
    Ok(objects)
}

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const XML: &str = "application/xml";
const MARKDOWN: &str = "text/markdown; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// The folder of the build, with a slash at the end.
fn folder(job: &Job, build: &str) -> Result<String> {
    let name = &job.name;
    // The default name comes from the record, which another machine may have written.
    ensure!(is_component(name), "the job name `{name}` cannot be part of a path; give another name with --job");
    match (job.pull, &job.repo) {
        (None, _) => Ok(format!("logs/{name}/{build}/")),
        (Some(_), Some(repo)) if !is_component(&repo.replace('/', "_")) => {
            bail!("the repository `{repo}` cannot be part of a path; give ORG/NAME with --repo")
        }
        (Some(pull), Some(repo)) => Ok(format!("pr-logs/pull/{}/{pull}/{name}/{build}/", repo.replace('/', "_"))),
        (Some(_), None) => bail!("a pull request needs its repository; give ORG/NAME with --repo"),
    }
}

/// Whether a name stays one component of a path, in a bucket and on a disk.
fn is_component(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && name.len() <= 200 && !name.starts_with('.') && name.chars().all(plain)
}

/// The pointers to the newest build. They are written after all other objects.
fn pointers(job: &Job, build: &str, folder: &str) -> Vec<Object> {
    let pointer = |name, text: String| Object { name, content_type: TEXT, bytes: text.into_bytes(), pointer: true };
    let name = &job.name;
    if job.pull.is_none() {
        return vec![pointer(format!("logs/{name}/latest-build.txt"), build.to_owned())];
    }
    let whole = job.bucket.as_ref().map(|bucket| format!("gs://{bucket}/{}", folder.trim_end_matches('/')));
    let alias =
        whole.map(|text| Object { pointer: false, ..pointer(format!("pr-logs/directory/{name}/{build}.txt"), text) });
    alias.into_iter().chain([pointer(format!("pr-logs/directory/{name}/latest-build.txt"), build.to_owned())]).collect()
}

fn started<'a>(view: &View<'a>, job: &'a Job, timestamp: i64) -> Started<'a> {
    let commit = job.commit.as_deref();
    let revision = || match (job.pull, commit) {
        (Some(pull), commit) => format!("{pull}:{}", commit.unwrap_or_default()),
        (None, commit) => commit.unwrap_or_default().to_owned(),
    };
    Started {
        timestamp,
        node: view.run.map_or("", |run| &run.host),
        repos: job.repo.iter().map(|repo| (repo.as_str(), revision())).collect(),
        commit,
        pull: job.pull.map(|pull| pull.to_string()),
    }
}

fn finished<'a>(record: &Record, view: &View<'a>, job: &Job, timestamp: i64) -> Finished<'a> {
    let exit = verdict::exit(&record.events);
    let result = match exit {
        Exit::Ok => "SUCCESS",
        Exit::Interrupted => "ABORTED",
        _ => "FAILURE",
    };
    Finished { timestamp, passed: exit == Exit::Ok, result, metadata: metadata(view, job, exit) }
}

/// Metadata of the build. TestGrid can show each value in a column header.
fn metadata<'a>(view: &View<'a>, job: &Job, exit: Exit) -> BTreeMap<&'a str, String> {
    let mut all = BTreeMap::from([
        ("arch", view.arch().to_owned()),
        ("provider", view.provider().to_owned()),
        ("store", about::store(view).to_owned()),
        ("verdict", exit.to_string()),
        ("cases", view.counts().sentence()),
    ]);
    if let Some(booted) = &view.booted {
        all.insert("execution", booted.execution.to_owned());
        all.insert("factor", format!("{:.2}", booted.factor));
        all.extend(booted.versions.iter().map(|(server, version)| (server.as_str(), version.clone())));
    }
    if let Some(run) = view.run {
        all.extend([("run", run.id.clone()), ("seed", run.seed.to_string()), ("repeat", run.command.clone())]);
    }
    if let Some(version) = about::version(view, "kube-apiserver") {
        // TestGrid shows the first nine characters after the plus sign.
        let commit = job.commit.iter().map(|commit| format!("+{}", commit.chars().take(9).collect::<String>()));
        all.insert("job-version", format!("{version}{}", commit.collect::<String>()));
    }
    all.extend(job.commit.iter().map(|commit| ("repo-commit", commit.clone())));
    all
}

/// The output of the console, with the time before each line.
fn build_log(record: &Record) -> Vec<u8> {
    let bytes = Shared::default();
    let folder = "artifacts".to_owned();
    let options = Options { stamps: true, verbosity: Verbosity::Verbose, folder, ..Options::default() };
    let mut console = Console::new(Box::new(bytes.clone()), options);
    record.events.iter().for_each(|event| console.event(event));
    let log = bytes.0.lock().unwrap_or_else(PoisonError::into_inner);
    log.clone()
}

/// A writer that keeps what was written.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn seconds(stamp: &str) -> Option<i64> {
    stamp.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn record() -> Record {
        let logs = BTreeMap::from([("default.etcd-main.log".to_owned(), b"one\n".to_vec())]);
        Record { events: fixture::run(), logs, ..Record::default() }
    }

    fn job() -> Job {
        Job { name: "archproof-mix64".into(), ..Job::default() }
    }

    fn value(objects: &[Object], name: &str) -> serde_json::Value {
        let object = objects.iter().find(|object| object.name.ends_with(name)).unwrap();
        serde_json::from_slice(&object.bytes).unwrap()
    }

    #[test]
    fn periodic_build_has_its_objects_in_order() {
        let objects = prow(&record(), &job()).unwrap();
        let names: Vec<&str> = objects.iter().map(|object| object.name.as_str()).collect();
        let build = "logs/archproof-mix64/1795255200";
        let wanted = [
            "started.json",
            "build-log.txt",
            "artifacts/junit_mix64_01.xml",
            "artifacts/summary.md",
            "artifacts/run.json",
            "artifacts/logs/default.etcd-main.log",
            "finished.json",
        ];
        assert_eq!(names[..7], wanted.map(|name| format!("{build}/{name}")));
        assert_eq!(names[7..], ["logs/archproof-mix64/latest-build.txt"]);
        assert_eq!(objects[7].bytes, b"1795255200");
        assert!(objects[7].pointer && objects[..7].iter().all(|object| !object.pointer));
        let log = String::from_utf8(objects[1].bytes.clone()).unwrap();
        assert!(log.contains("10:00:20 ") && log.contains("revision 7 was delivered after 9"), "{log}");
    }

    #[test]
    fn presubmit_names_repository_and_pull_request() {
        let job = Job {
            repo: Some("etcd-io/etcd".into()),
            commit: Some("0123456789abcdef0123456789abcdef01234567".into()),
            pull: Some(7),
            bucket: Some("b/x".into()),
            ..job()
        };
        let objects = prow(&record(), &job).unwrap();
        let build = "pr-logs/pull/etcd-io_etcd/7/archproof-mix64/1795255200";
        assert_eq!(objects[0].name, format!("{build}/started.json"));
        let started = value(&objects, "started.json");
        assert_eq!(started["timestamp"], 1_795_255_200);
        assert_eq!(started["repos"]["etcd-io/etcd"], "7:0123456789abcdef0123456789abcdef01234567");
        assert_eq!(started["pull"], "7");
        let [alias, latest] = &objects[objects.len() - 2..] else { panic!() };
        assert_eq!(alias.name, "pr-logs/directory/archproof-mix64/1795255200.txt");
        assert_eq!(alias.bytes, format!("gs://b/x/{build}").as_bytes());
        assert_eq!(latest.name, "pr-logs/directory/archproof-mix64/latest-build.txt");
        assert!(prow(&record(), &Job { repo: None, ..job }).is_err());
    }

    #[test]
    fn job_names_that_leave_the_folder_are_refused() {
        for name in ["../../x", "a/b", "..", "", ".hidden", "a\nb", "a\\b"] {
            let error = prow(&record(), &Job { name: name.into(), ..job() }).unwrap_err();
            assert!(error.to_string().contains("cannot be part of a path"), "{error}");
        }
        let pull = Job { repo: Some("..".into()), pull: Some(7), ..job() };
        assert!(prow(&record(), &pull).is_err());
    }

    #[test]
    fn finished_json_has_the_verdict() {
        let finished = value(&prow(&record(), &job()).unwrap(), "finished.json");
        assert_eq!((&finished["passed"], &finished["result"]), (&false.into(), &"FAILURE".into()));
        assert_eq!(finished["timestamp"], 1_795_255_275);
        assert_eq!(finished["metadata"]["etcd"], "3.6.16");
        // TestGrid accepts strings and one level of maps of strings.
        assert!(finished["metadata"].as_object().unwrap().values().all(serde_json::Value::is_string));
        let mut events = fixture::run();
        events.pop();
        let killed = Record { events, ..Record::default() };
        let finished = value(&prow(&killed, &job()).unwrap(), "finished.json");
        assert_eq!((&finished["passed"], &finished["result"]), (&false.into(), &"ABORTED".into()));
        let nothing =
            Record { events: vec![fixture::started(), fixture::finished(Exit::NothingRan)], ..Record::default() };
        assert_eq!(value(&prow(&nothing, &job()).unwrap(), "finished.json")["result"], "FAILURE");
        assert!(prow(&Record::default(), &job()).is_err());
    }
}
