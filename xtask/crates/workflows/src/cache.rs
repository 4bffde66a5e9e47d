//! Cache keys for CI systems.
//!
//! A key contains everything that decides the content, so that a hit is never wrong. A cache with only the same key
//! prefix (`restore`) is nearly right, and its users correct it: Go and this project's cache verify digests. The
//! architecture comes from the target data and never from GitHub's `runner.arch`, which is wrong on ported runners.

use std::collections::BTreeSet;

use model::{CacheSizes, MatrixData, Mode, Target};
use serde::Serialize;

use crate::event::Event;
use crate::job::Job;
use crate::matrix::breadth;

/// Changes when the layout of a cached folder changes.
const FORM: &str = "v1";
/// Hex digits of a digest; enough to distinguish versions of a file, and below GitHub's limit of 512 characters.
const DIGITS: usize = 20;

/// The texts and versions that decide the keys.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// GOARCH of the target.
    pub arch: &'a str,
    /// GOARCH of this machine.
    pub host: &'a str,
    /// `go.mod`, `go.sum` and programs below `targets/components` and `targets/programs`, and `components.yaml`.
    pub components: &'a [(String, String)],
    /// The file of the target.
    pub target: &'a str,
    /// The locks of Debian packages of the target and of this machine, which has QEMU for the target.
    pub packages: &'a str,
    /// The lock of Go toolchains.
    pub go: &'a str,
    /// `profiles.yaml`.
    pub profiles: &'a str,
    /// `Cargo.lock`.
    pub cargo: &'a str,
    /// The output of `rustc --version`.
    pub rustc: &'a str,
}

/// A key and the folders that it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Key {
    pub key: String,
    /// Prefix of keys whose content is nearly right; empty: only the exact key.
    pub restore: String,
    /// In the syntax of CI systems: `~` is the home folder.
    pub paths: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Keys {
    /// Compiled Rust dependencies of this project.
    pub cargo: Key,
    /// Sources of Go modules: the same for all architectures.
    pub modules: Key,
    /// Go's build cache.
    pub gobuild: Key,
    /// The audited binaries. The workflows append the job's id, because a job builds only what its checks need.
    pub components: Key,
    /// Debian packages and Go toolchains.
    pub downloads: Key,
    /// Memory of booted VMs. It contains private keys of clusters: only for caches that untrusted jobs cannot read.
    pub snapshots: Key,
}

impl Keys {
    pub fn of(inputs: &Inputs<'_>) -> Keys {
        let Inputs { arch, host, components, target, packages, go, profiles, cargo, rustc } = inputs;
        let part = |wanted: fn(&str) -> bool| {
            let chosen = components.iter().filter(|(name, _)| wanted(name));
            digest(&chosen.flat_map(|(name, text)| [name.as_str(), text]).collect::<Vec<_>>())
        };
        let modules = part(|name| name.ends_with("go.sum"));
        let built = part(|_| true);
        let toolchain = digest(&[go]);
        let binaries = digest(&[&built, target, go]);
        let rust = digest(&[rustc]);
        let with = |kind: &str, fixed: &str, rest: &str, paths: &[&'static str]| {
            let restore = format!("archproof-{FORM}-{kind}-{fixed}");
            Key { key: format!("{restore}{rest}"), restore, paths: paths.to_vec() }
        };
        let exact = |key: Key| Key { restore: String::new(), ..key };
        let both = format!("{arch}-on-{host}-");
        Keys {
            cargo: with("cargo", &format!("{host}-{rust}-"), &digest(&[cargo]), &["~/.cargo/registry", "target"]),
            modules: with("modules", "", &modules, &["~/go/pkg/mod"]),
            gobuild: with("gobuild", &format!("{both}{toolchain}-"), &built, &["~/.cache/go-build"]),
            components: exact(with("components", &both, &binaries, &["~/.cache/archproof/components"])),
            downloads: with(
                "downloads",
                &both,
                &digest(&[packages, go]),
                &["~/.cache/archproof/debian", "~/.cache/archproof/go"],
            ),
            snapshots: exact(with(
                "snapshots",
                &both,
                &digest(&[&binaries, packages, profiles]),
                &["~/.cache/archproof/snapshots"],
            )),
        }
    }

    pub fn named(&self) -> [(&'static str, &Key); 6] {
        [
            ("cargo", &self.cargo),
            ("modules", &self.modules),
            ("gobuild", &self.gobuild),
            ("components", &self.components),
            ("downloads", &self.downloads),
            ("snapshots", &self.snapshots),
        ]
    }
}

/// All caches of one kind that jobs on GitHub-hosted runners save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub kind: &'static str,
    /// The subject of each cache: a machine, an architecture on a machine, or a job.
    pub of: BTreeSet<String>,
    /// MiB of one cache.
    pub each: u32,
}

impl Kept {
    /// MiB of all caches.
    pub fn total(&self) -> u32 {
        u32::try_from(self.of.len()).unwrap_or(u32::MAX).saturating_mul(self.each)
    }
}

/// The caches of the newest versions of everything. GitHub evicts older caches first while these are in use.
pub fn kept(targets: &[Target], data: &MatrixData) -> Vec<Kept> {
    let CacheSizes { limit: _, cargo, modules, gobuild, components, downloads } = data.caches;
    let mut machines = BTreeSet::new();
    let (mut compiled, mut built, mut fetched) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for target in targets {
        let hosted = target.ci.iter().flat_map(|ci| &ci.ways).find_map(|way| {
            let runner = data.runners.iter().find(|runner| runner.name == way.runner)?;
            (runner.available && !runner.owner.is_self_hosted()).then_some((way, runner))
        });
        let Some((way, runner)) = hosted else { continue };
        machines.insert(runner.name.clone());
        let name = format!("{}-on-{}", target.name, runner.arch);
        if way.mode == Mode::Vm {
            fetched.insert(name.clone());
        }
        compiled.insert(name);
        let jobs = |event| Job::of(target, way, breadth(way.mode, event));
        built.extend([Event::Push, Event::Schedule].into_iter().flat_map(jobs).map(|job| job.id()));
    }
    let all = BTreeSet::from(["all".to_owned()]);
    vec![
        Kept { kind: "cargo", of: machines, each: cargo },
        Kept { kind: "modules", of: all, each: modules },
        Kept { kind: "gobuild", of: compiled, each: gobuild },
        Kept { kind: "components", of: built, each: components },
        Kept { kind: "downloads", of: fetched, each: downloads },
    ]
}

/// Digest of several texts. It includes their lengths, so that moving text between them changes it.
fn digest(texts: &[&str]) -> String {
    let mut sha = ring::digest::Context::new(&ring::digest::SHA256);
    for text in texts {
        sha.update(&(text.len() as u64).to_be_bytes());
        sha.update(text.as_bytes());
    }
    let hex: String = sha.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    hex[..DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn components() -> Vec<(String, String)> {
        [("components.yaml", "c"), ("etcd/go.mod", "m"), ("etcd/go.sum", "s"), ("etcd/tools.go", "t")]
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .into()
    }

    fn inputs(components: &[(String, String)]) -> Inputs<'_> {
        Inputs {
            arch: "riscv64",
            host: "amd64",
            components,
            target: "t",
            packages: "p",
            go: "g",
            profiles: "f",
            cargo: "l",
            rustc: "r",
        }
    }

    /// The names of the keys that differ.
    fn differing(one: &Keys, other: &Keys) -> Vec<&'static str> {
        let pairs = one.named().into_iter().zip(other.named());
        pairs.filter(|((_, a), (_, b))| a.key != b.key).map(|((name, _), _)| name).collect()
    }

    #[test]
    fn each_input_changes_exactly_the_keys_that_depend_on_it() {
        let components = components();
        let base = inputs(&components);
        let same = Keys::of(&base);
        let with = |change: fn(&mut Inputs<'_>)| {
            let mut inputs = base.clone();
            change(&mut inputs);
            differing(&same, &Keys::of(&inputs))
        };
        assert_eq!(with(|_| ()), [""; 0]);
        let per_arch = ["gobuild", "components", "downloads", "snapshots"];
        assert_eq!(with(|i| i.arch = "arm64"), per_arch);
        assert_eq!(with(|i| i.host = "arm64"), ["cargo", "gobuild", "components", "downloads", "snapshots"]);
        assert_eq!(with(|i| i.target = "x"), ["components", "snapshots"]);
        assert_eq!(with(|i| i.packages = "x"), ["downloads", "snapshots"]);
        assert_eq!(with(|i| i.go = "x"), per_arch);
        assert_eq!(with(|i| i.profiles = "x"), ["snapshots"]);
        assert_eq!(with(|i| i.cargo = "x"), ["cargo"]);
        assert_eq!(with(|i| i.rustc = "x"), ["cargo"]);
        let change = |at: usize| {
            let mut changed = components.clone();
            changed[at].1.push('x');
            differing(&same, &Keys::of(&inputs(&changed)))
        };
        assert_eq!(change(2), ["modules", "gobuild", "components", "snapshots"]);
        assert_eq!(change(3), ["gobuild", "components", "snapshots"]);
    }

    #[test]
    fn keys_are_short_plain_and_start_with_their_restore_prefix() {
        let components = components();
        for (name, key) in Keys::of(&inputs(&components)).named() {
            assert!(key.key.len() <= 512 && key.key.starts_with(&key.restore), "{name}");
            assert!(key.key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{name}");
            assert!(!key.paths.is_empty());
        }
    }
}
