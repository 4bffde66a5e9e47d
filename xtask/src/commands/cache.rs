//! `cargo xtask cache`: lists, prunes and verifies the cache.

use std::collections::BTreeMap;

use ::fetch::cache::{self, Entry, Keep};
use cli::{Failure, OrExit, Paths, print, print_json};
use model::Exit;
use sys::progress;

use crate::args::{CacheCommand, CacheOptions, PruneOptions};

/// Kinds with too many entries for a line each.
const COUNTED: [&str; 2] = ["debian/pool", "debian/index"];

pub(crate) fn run(paths: &Paths, options: &CacheOptions) -> Result<Exit, Failure> {
    match &options.command {
        CacheCommand::List(options) => {
            let entries = cache::list(&paths.cache);
            if options.json {
                print_json(&entries)?;
            } else {
                print(&table(&entries));
                print(&format!("{} in {}\n", size(&entries), paths.cache.display()));
            }
        }
        CacheCommand::Prune(options) => {
            // The leftovers of killed runs have no owner.
            sys::run_dir::sweep(&paths.cache);
            let gone = cache::prune(&paths.cache, keep(options), options.dry_run).or_exit(Exit::Infrastructure)?;
            progress::say(table(&gone).trim_end());
            let done = if options.dry_run { "would be removed" } else { "removed" };
            let left = size(&cache::list(&paths.cache));
            let there = if options.dry_run { "present:" } else { "left:" };
            progress::say(&format!("{} {done}; {there} {left} in {}", size(&gone), paths.cache.display()));
        }
        CacheCommand::Keys(options) => {
            return workflows::commands::keys::run(
                &paths.targets,
                cli::paths::checkout()?,
                paths.github.as_ref(),
                options,
            );
        }
        CacheCommand::Verify => {
            let phase = progress::Phase::start("verify the cache");
            let damaged = cache::verify(&paths.cache).or_exit(Exit::Infrastructure)?;
            phase.done(&format!("{} damaged", damaged.len()));
            for (entry, why) in &damaged {
                progress::say(&format!("{}: {why}", entry.path.display()));
            }
            return Ok(if damaged.is_empty() { Exit::Ok } else { Exit::Infrastructure });
        }
    }
    Ok(Exit::Ok)
}

fn keep(options: &PruneOptions) -> Keep {
    match (options.all, options.max_size) {
        (true, _) => Keep::Nothing,
        (false, Some(size)) => Keep::Size(size),
        (false, None) => Keep::Days(options.keep_days),
    }
}

/// A line for each entry, or one line for all entries of a kind that has many.
fn table(entries: &[Entry]) -> String {
    let mut lines = Vec::new();
    let mut counted: BTreeMap<&str, Vec<Entry>> = BTreeMap::new();
    for entry in entries {
        if COUNTED.contains(&entry.kind.as_str()) {
            counted.entry(&entry.kind).or_default().push(entry.clone());
            continue;
        }
        let used = entry.last_use.map_or_else(|| "?".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M").to_string());
        let busy = if entry.in_use { ", in use" } else { "" };
        let Entry { kind, title, .. } = entry;
        lines.push(format!("{kind:14} {:>10}  {title}, last used {used}{busy}\n", size(std::slice::from_ref(entry))));
    }
    for (kind, all) in counted {
        lines.push(format!("{kind:14} {:>10}  {} files\n", size(&all), all.len()));
    }
    lines.concat()
}

/// For example "1.2 GiB".
fn size(entries: &[Entry]) -> String {
    let bytes: u64 = entries.iter().map(|entry| entry.size).sum();
    let mib = bytes.div_ceil(1 << 20);
    if mib < 10 << 10 { format!("{mib} MiB") } else { format!("{} GiB", mib / 1024) }
}
