//! `cargo xtask cache keys`: the keys under which a CI system caches slow build results. This module reads their
//! inputs.

use std::fs::{self, DirEntry};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use cli::github::{self, Github};
use cli::{Failure, OrExit, host_target, print, print_json, target};
use model::Exit;
use sys::exec::{Shell, cmd, run as exec};
use targets::Catalogue;

use crate::args::KeysOptions;
use crate::artifacts::listed;
use crate::{Inputs, Kept, Keys, kept};

const ASK: Duration = Duration::from_secs(60);

pub fn run(data: &Path, root: &Path, github: Option<&Github>, options: &KeysOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(data)?;
    if options.sizes {
        return sizes(&catalogue);
    }
    let target = target(&catalogue, options.arch.as_deref())?;
    let host = host_target(&catalogue)?;
    let keys = keys(data, root, &target.name, &host.name).or_exit(Exit::Infrastructure)?;
    if options.json {
        print_json(&keys)?;
    } else if options.github_output {
        let named = keys.named();
        let restores = named.map(|(name, _)| format!("{name}_restore"));
        let each = named.iter().zip(&restores);
        let outputs =
            each.flat_map(|((name, key), restore)| [(*name, key.key.clone()), (restore, key.restore.clone())]);
        github::set(github, &outputs.collect::<Vec<_>>())?;
    } else {
        for (name, key) in keys.named() {
            print(&format!("{name:10}  {}  {}\n", key.key, key.paths.join(" ")));
        }
    }
    Ok(Exit::Ok)
}

/// Prints a line for each kind of cache, and the total.
fn sizes(catalogue: &Catalogue) -> Result<Exit, Failure> {
    let kept = kept(&catalogue.targets, &catalogue.matrix);
    for kind in &kept {
        let of = kind.of.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        print(&format!("{:10}  {:5} MiB = {} x {:4}  {of}\n", kind.kind, kind.total(), kind.of.len(), kind.each));
    }
    let (total, limit) = (kept.iter().map(Kept::total).fold(0, u32::saturating_add), catalogue.matrix.caches.limit);
    print(&format!("{:10}  {total:5} MiB of {limit}\n", "total"));
    if total <= limit {
        return Ok(Exit::Ok);
    }
    Err(Failure::target_data(format!(
        "the CI caches take {total} MiB, but GitHub keeps only {limit} MiB: save fewer, or correct `caches` in \
         targets/matrix.yaml"
    )))
}

fn keys(data: &Path, root: &Path, arch: &str, host: &str) -> anyhow::Result<Keys> {
    let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()));
    let lock = |arch: &str| read(&data.join(format!("architectures/{arch}.lock")));
    let shell = Shell::new()?;
    let rustc = exec(cmd!(shell, "rustc --version"), ASK)?.stdout;
    // If no Go is installed or it is too old, the Go of the lock is fetched.
    let go = exec(cmd!(shell, "go env GOVERSION"), ASK).map_or_else(|_| String::new(), |output| output.stdout);
    Ok(Keys::of(&Inputs {
        arch,
        host,
        components: &components(data)?,
        target: &read(&data.join(format!("architectures/{arch}.yaml")))?,
        packages: &format!("{}{}", lock(arch)?, lock(host)?),
        go: &format!("{}{go}", read(&data.join("go.lock"))?),
        profiles: &read(&data.join("profiles.yaml"))?,
        cargo: &read(&root.join("Cargo.lock"))?,
        rustc: &rustc,
    }))
}

/// The files that define the components, with their paths below `targets`, in a fixed order.
fn components(data: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = vec![data.join("components.yaml")];
    for kind in ["components", "programs"] {
        for folder in sorted(&data.join(kind))? {
            files.extend(sorted(&folder)?);
        }
    }
    let named = |file: std::path::PathBuf| {
        let name = file.strip_prefix(data).unwrap_or(&file).display().to_string();
        let text = fs::read_to_string(&file).with_context(|| format!("failed to read {}", file.display()))?;
        Ok((name, text))
    };
    files.into_iter().map(named).collect()
}

fn sorted(folder: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    Ok(listed(folder)?.iter().map(DirEntry::path).collect())
}
