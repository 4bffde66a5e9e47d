//! `pins check`: collects the rows and decides the exit code.

use std::path::Path;

use build::GoTool;
use cli::{Failure, OrExit, print, print_json};
use jiff::Timestamp;
use model::Exit;
use sys::progress;
use targets::Catalogue;
use workflows::Lock;

use crate::args::CheckOptions;
use crate::pinned::{self, Folder, Pinned};
use crate::state::{GRACE_DAYS, Line, State, lines};
use crate::version::Version;
use crate::{hub, locks, table, toolchain, upstream};

/// The names that `--set` accepts in addition to the sets of components.
const OTHERS: [&str; 4] = [toolchain::SET, hub::ACTIONS, hub::AGENTS, locks::SET];

/// Prints the table.
///
/// # Errors
/// An unknown name, unreadable data, Go is missing, or an interrupt.
pub(crate) fn run(targets: &Path, root: &Path, options: &CheckOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(targets)?;
    known(&catalogue, &options.sets)?;
    let now = Timestamp::now();
    let wanted = |name: &str| options.sets.is_empty() || options.sets.iter().any(|set| set == name);
    let sets = pinned::pinned(&catalogue, targets, &options.sets).or_exit(Exit::TargetData)?;
    let mut rows = Vec::new();
    if wanted(toolchain::SET) || !sets.is_empty() {
        let go = GoTool::any().or_exit(Exit::Infrastructure)?;
        rows.extend(of_sets(&go, &sets, now).or_exit(Exit::Infrastructure)?);
        if wanted(toolchain::SET) {
            let lock = pinned::read(&targets.join("go.lock")).or_exit(Exit::TargetData)?;
            rows.extend(toolchain::check(&go, &lock, now).or_exit(Exit::Infrastructure)?);
        }
    }
    rows.extend(of_hub(&catalogue, root, options, &wanted, now)?);
    if wanted(locks::SET) {
        rows.extend(locks::check(targets, now).or_exit(Exit::TargetData)?);
    }
    if options.json.json {
        print_json(&rows)?
    } else {
        print(&table::table(&rows))
    }
    Ok(verdict(&rows))
}

/// The rows of the sets of components.
fn of_sets(go: &GoTool, sets: &[Pinned], now: Timestamp) -> anyhow::Result<Vec<Line>> {
    let mut rows = Vec::new();
    for (set, offer) in sets.iter().zip(upstream::offers(go, sets)?) {
        match offer {
            Ok(offer) => rows.extend(lines(&set.pins, &offer, now).into_iter().map(|line| marked(set, line))),
            Err(why) => {
                let unknown = |pin: &Version| Line::unknown(&set.pins.set, pin.minor(), &pin.to_string(), &why);
                rows.extend(set.pins.pinned.iter().rev().map(unknown));
            }
        }
    }
    Ok(rows)
}

/// Names a draft in the row of its version.
fn marked(set: &Pinned, line: Line) -> Line {
    let is_row = |folder: &&Folder| line.pinned.as_ref().is_some_and(|pinned| *pinned == folder.version.to_string());
    match set.folders.iter().find(is_row).filter(|folder| folder.draft) {
        Some(_) if line.note.is_empty() => Line { note: "a draft".to_owned(), ..line },
        Some(_) => Line { note: format!("a draft; {}", line.note), ..line },
        None => line,
    }
}

fn of_hub(
    catalogue: &Catalogue,
    root: &Path,
    options: &CheckOptions,
    wanted: &impl Fn(&str) -> bool,
    now: Timestamp,
) -> Result<Vec<Line>, Failure> {
    let mut all = Vec::new();
    let file = root.join("workflows/actions.lock");
    if wanted(hub::ACTIONS) && file.exists() {
        let lock = Lock::parse(&pinned::read(&file).or_exit(Exit::TargetData)?);
        all.extend(hub::actions(&lock.map_err(|why| Failure::target_data(format!("workflows/{why}")))?));
    } else if options.sets.iter().any(|set| set == hub::ACTIONS) {
        let text = format!("`actions` needs a checkout: a release archive has no {}", file.display());
        return Err(Failure::usage(anyhow::anyhow!(text)));
    }
    if wanted(hub::AGENTS) {
        all.extend(hub::agents(&catalogue.runners.agents));
    }
    let hub = &options.hub;
    hub::check(&all, &hub.api_url, hub.token.as_ref(), now).map_err(anyhow::Error::from).or_exit(Exit::Interrupted)
}

/// Refuses names that `--set` does not know.
fn known(catalogue: &Catalogue, names: &[String]) -> Result<(), Failure> {
    for name in names.iter().filter(|name| !OTHERS.contains(&name.as_str())) {
        let set = catalogue.set(name)?;
        if set.is_own() {
            let text = format!("`{name}` has only programs of this project: name a set with a module of upstream");
            return Err(Failure::usage(anyhow::anyhow!(text)));
        }
    }
    Ok(())
}

/// The exit code: an overdue version is certain, so it wins over an unknown one.
fn verdict(rows: &[Line]) -> Exit {
    let count = |wanted: fn(&Line) -> bool| rows.iter().filter(|row| wanted(row)).count();
    let (overdue, unknown) = (count(|row| row.overdue), count(|row| row.state == State::Unknown));
    if overdue > 0 {
        let advice = "run `cargo xtask pins bump`, or with `--minor` for a missing minor";
        progress::say(&format!(
            "{overdue} of {} pins are overdue by more than {GRACE_DAYS} days: {advice}",
            rows.len()
        ));
        return Exit::Conformance;
    }
    if unknown > 0 {
        progress::say(&format!("{unknown} of {} pins are unknown", rows.len()));
        return Exit::Infrastructure;
    }
    Exit::Ok
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overdue_pin_wins_over_an_unknown_one() {
        let overdue = Line { overdue: true, ..Line::new("a", "1.0", State::PatchAvailable) };
        let young = Line { days: Some(2), ..Line::new("a", "1.0", State::PatchAvailable) };
        let unknown = Line::unknown("b", "1.0", "v1.0.0", "not reachable");
        let early = Line::new("c", "1.1", State::PreRelease);
        let verdict = |rows: &[&Line]| verdict(&rows.iter().map(|row| (*row).clone()).collect::<Vec<_>>());
        assert_eq!(verdict(&[&young, &early]), Exit::Ok);
        assert_eq!(verdict(&[&young, &unknown]), Exit::Infrastructure);
        assert_eq!(verdict(&[&unknown, &overdue]), Exit::Conformance);
    }
}
