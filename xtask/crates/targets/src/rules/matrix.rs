//! Rules for `targets/matrix.yaml`, and for `ci` of `targets/architectures/<name>.yaml`.

use model::{Ci, MatrixData, Mode, Owner, Profile, Runner, Target, Way};

use super::words::{architecture, name, once, one_of};
use crate::document::{Document, at};

/// GitHub's time limit for a job on its own machines, in minutes.
const LONGEST_HOSTED: u32 = 6 * 60;
/// GitHub's time limit for a job on other machines, in minutes.
const LONGEST: u32 = 5 * 24 * 60;
/// Shards divide the control planes: more shards than control planes would leave some empty.
const MOST_SHARDS: u32 = 16;

/// Checks the runners and the common settings of jobs. `profiles` are None if their file has problems.
pub(crate) fn matrix(
    file: &mut Document<'_>,
    content: &MatrixData,
    architectures: &[&str],
    profiles: Option<&[Profile]>,
) {
    let MatrixData { runners, quick, documents, caches: _ } = content;
    for (i, runner) in runners.iter().enumerate() {
        check_runner(file, i, runner, architectures);
        let earlier = runners[..i].iter().map(|runner| &runner.name);
        once(file, at!["runners", i, "name"], &runner.name, earlier);
    }
    for (i, name) in quick.profiles.iter().enumerate() {
        if let Some(profiles) = profiles {
            let valid = profiles.iter().map(|profile| profile.name.as_str());
            one_of(file, at!["quick", "profiles", i], name, valid);
        }
    }
    file.require(!quick.profiles.is_empty(), at!["quick", "profiles"], "must name at least one profile");
    for (i, pattern) in documents.iter().enumerate() {
        let ending = pattern.strip_prefix("*.").unwrap_or(pattern);
        let plain = !ending.is_empty() && !ending.contains(|c: char| c == '*' || c.is_whitespace());
        file.require(plain, at!["documents", i], "must be a file's name, or an ending such as *.md");
    }
}

fn check_runner(file: &mut Document<'_>, i: usize, runner: &Runner, architectures: &[&str]) {
    let Runner { name: own_name, arch, labels, owner, available: _, note } = runner;
    name(file, at!["runners", i, "name"], own_name);
    architecture(file, at!["runners", i, "arch"], arch, architectures);
    file.require(!note.trim().is_empty(), at!["runners", i, "note"], "must say how to get the machine");
    let path = at!["runners", i, "labels"];
    file.require(!labels.is_empty(), path, "must name at least one label");
    for (j, label) in labels.iter().enumerate() {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let good = !label.is_empty() && label.chars().all(plain);
        file.require(good, at!["runners", i, "labels", j], "must be letters, digits, -, _ and .");
    }
    let own = labels.first().is_some_and(|label| label == "self-hosted");
    match owner {
        // Labels of donated runners may look similar: `ubuntu-24.04-NAME`.
        Owner::Github => {
            let good = matches!(&labels[..], [label] if is_github_label(label));
            file.require(good, path, "must be one label of GitHub's own, such as ubuntu-24.04; else it is `donated`");
        }
        Owner::Donated => file.require(labels.len() <= 1, path, "must be one label: the owner looks for it alone"),
        Owner::Own => {
            file.require(own, path, "must begin with self-hosted");
            // A ported runner claims another architecture in its default labels.
            let rule = format!("must contain {arch}: default labels of ports are wrong");
            file.require(labels.contains(arch), path, rule);
        }
    }
}

/// `ubuntu-24.04`, `ubuntu-24.04-arm`.
fn is_github_label(label: &str) -> bool {
    let version = label.strip_prefix("ubuntu-").map(|rest| rest.strip_suffix("-arm").unwrap_or(rest));
    version.and_then(|version| version.split_once('.')).is_some_and(|(year, month)| {
        [year, month].iter().all(|part| part.len() == 2 && part.chars().all(|c| c.is_ascii_digit()))
    })
}

/// Checks the jobs of one architecture.
pub(crate) fn ci(file: &mut Document<'_>, target: &Target, matrix: &MatrixData) {
    let Some(Ci { experimental: _, ways }) = &target.ci else { return };
    let owner = |way: &Way| matrix.runners.iter().find(|runner| runner.name == way.runner);
    for (i, way) in ways.iter().enumerate() {
        check_way(file, i, way, target, owner(way), matrix);
        if ways[..i].iter().any(|earlier| earlier.mode > way.mode) {
            file.refuse(at!["ci", "ways", i, "mode"], format!("{} proves more than the entry before it", way.mode));
        }
        let same = |way: &Way| (way.mode, way.runner.clone(), way.is_from_source());
        if ways[..i].iter().any(|earlier| same(earlier) == same(way)) {
            file.refuse(at!["ci", "ways", i], "is a duplicate; delete one of the two");
        }
    }
    let open = |way: &Way| owner(way).is_some_and(|runner| !runner.owner.is_self_hosted() && runner.available);
    let rule = "must end with one of GitHub's own runners: pull requests from forks use no other";
    file.require(ways.last().is_some_and(open), at!["ci", "ways"], rule);
}

fn check_way(
    file: &mut Document<'_>,
    i: usize,
    way: &Way,
    target: &Target,
    runner: Option<&Runner>,
    matrix: &MatrixData,
) {
    let Way { mode, runner: name, programs, minutes, shards } = way;
    let Some(runner) = runner else {
        return one_of(file, at!["ci", "ways", i, "runner"], name, matrix.runners.iter().map(|other| &*other.name));
    };
    let native = runner.arch == target.name;
    let path = at!["ci", "ways", i, "mode"];
    match mode {
        Mode::Native if !native => {
            let rule = format!("native needs a runner that is {} itself; {name} is {}", target.name, runner.arch);
            file.refuse(at!["ci", "ways", i, "runner"], rule);
        }
        Mode::Vm => file.require(target.machine.is_some(), path, "needs `machine`, which is missing"),
        Mode::User if native => file.refuse(path, format!("{name} is {} itself: that is native", target.name)),
        Mode::User => file.require(target.emulator.is_some(), path, "needs `emulator`, which is missing"),
        Mode::Native | Mode::Build => {}
    }
    let path = at!["ci", "ways", i, "programs"];
    if programs.is_some() && *mode != Mode::Native {
        file.refuse(path, "is only for native jobs; the others always compile");
    } else if programs.is_some() && !runner.owner.is_self_hosted() {
        file.refuse(path, "is only for self-hosted runners; jobs on GitHub's own always compile");
    }
    let archive = target.harness.is_some() || !native || !way.is_prebuilt(runner.owner);
    let rule = "a prebuilt job needs `harness` of the architecture; add it, or `programs: source`";
    file.require(archive, at!["ci", "ways", i], rule);
    let longest = if runner.owner.is_self_hosted() { LONGEST } else { LONGEST_HOSTED };
    let path = at!["ci", "ways", i, "minutes"];
    file.require((1..=longest).contains(minutes), path, format!("must be from 1 to {longest}; found {minutes}"));
    let most = if *mode == Mode::Build { 1 } else { MOST_SHARDS };
    let path = at!["ci", "ways", i, "shards"];
    file.require((1..=most).contains(shards), path, format!("must be from 1 to {most}; found {shards}"));
}
