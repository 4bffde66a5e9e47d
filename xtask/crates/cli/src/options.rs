//! Options that several areas share.

use std::collections::BTreeMap;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use model::{NativeJob, Source, StoreKind};

#[derive(Clone, Debug, Args)]
pub struct SourceOptions {
    /// Source of Kubernetes: VERSION (`targets` prints the pinned ones), module[:VERSION], checkout:PATH or
    /// prebuilt:DIR
    #[arg(long, value_name = "SPEC", default_value = "module")]
    pub kubernetes: Source,
    /// Source of etcd, in the same form
    #[arg(long, value_name = "SPEC", default_value = "module")]
    pub etcd: Source,
    /// Source of kine, in the same form; only for the kine stores
    #[arg(long, value_name = "SPEC", default_value = "module")]
    pub kine: Source,
    /// Source of the program with client-go: VERSION, module[:VERSION] or prebuilt:DIR [default: the minor of a pinned or
    /// released Kubernetes, else the default minor]
    #[arg(long, value_name = "SPEC")]
    pub client: Option<Source>,
    /// Components that `build --export` has written on another machine: a folder, or its URL, which may end with
    /// #sha256=DIGEST of `components-ARCH.json`. Nothing is built
    #[arg(long = "components", value_name = "DIR|URL")]
    pub exported: Option<String>,
    /// Store under the apiservers
    #[arg(long, value_enum, value_name = "STORE", default_value = "etcd")]
    pub store: StoreArg,
    /// Fail instead of downloading anything
    #[arg(long)]
    pub offline: bool,
}

impl SourceOptions {
    /// Whether only pinned sources and etcd are selected.
    pub fn are_usual(&self) -> bool {
        let pinned = [&self.kubernetes, &self.etcd, &self.kine].iter().all(|source| **source == Source::Module(None));
        pinned && self.exported.is_none() && self.store == StoreArg::Etcd
    }
}

/// The values of `--for`.
pub fn native_job() -> impl TypedValueParser<Value = NativeJob> {
    let values = NativeJob::ALL.map(|job| PossibleValue::new(job.name()).help(job.summary()));
    PossibleValuesParser::new(values)
        .try_map(|name| NativeJob::ALL.into_iter().find(|job| job.name() == name).ok_or("not a kind of native job"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreArg {
    Etcd,
    /// kine on SQLite
    KineSqlite,
    /// kine on its own NATS server
    KineNats,
}

impl SourceOptions {
    /// The sources by the name of their set in `components.yaml`; only the sets in use. The client is among them if it is
    /// given: otherwise it follows Kubernetes.
    pub fn by_set(&self) -> BTreeMap<String, Source> {
        let store = match self.store {
            StoreArg::Etcd => ("etcd", &self.etcd),
            StoreArg::KineSqlite | StoreArg::KineNats => ("kine", &self.kine),
        };
        let client = self.client.as_ref().map(|source| ("client", source));
        let sets = [("kubernetes", &self.kubernetes), store].into_iter().chain(client);
        sets.map(|(set, source)| (set.to_owned(), source.clone())).collect()
    }

    /// The option of a store that a run with these sources does not have. Ignored, it would pass for a test of that store.
    pub(crate) fn without_use(&self) -> Option<&'static str> {
        let (option, source) = match self.store {
            StoreArg::Etcd => ("--kine", &self.kine),
            StoreArg::KineSqlite | StoreArg::KineNats => ("--etcd", &self.etcd),
        };
        (*source != Source::Module(None)).then_some(option)
    }

    pub fn store(&self) -> StoreKind {
        match self.store {
            StoreArg::Etcd => StoreKind::Etcd,
            StoreArg::KineSqlite => StoreKind::KineSqlite,
            StoreArg::KineNats => StoreKind::KineNats,
        }
    }
}

/// A processor or kernel other than the architecture's usual one.
#[derive(Clone, Debug, Args)]
pub struct CpuOptions {
    /// Variant of the architecture's processor or kernel (`targets` lists them)
    #[arg(long, value_name = "NAME")]
    pub cpu: Option<String>,
}

/// The sources of system VMs.
#[derive(Clone, Debug, Args)]
pub struct MachineOptions {
    /// QEMU that runs the system VMs
    #[arg(long, value_enum, default_value = "debian")]
    pub qemu: QemuArg,
    /// Use exactly the Debian packages in the lock, or fail
    #[arg(long)]
    pub locked: bool,
    /// Root of a Debian mirror [default: the one in this machine's apt sources, else deb.debian.org, then the snapshot
    /// archive]
    #[arg(long, value_name = "URL")]
    pub debian_mirror: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QemuArg {
    /// Debian's packages, fetched and verified; nothing is installed
    Debian,
    /// The QEMU on PATH
    System,
}

#[derive(Clone, Debug, Args)]
pub struct JsonOptions {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Parses a number of bytes; K, M, G and T are powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match text[number.len()..].to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return Err("expected a number of bytes, optionally with K, M, G or T: 500M, 10G".into()),
    };
    let number = number
        .parse::<u64>()
        .map_err(|_| "expected a whole number, optionally with K, M, G or T: 500M, 10G".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "too large".into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        sources: SourceOptions,
    }

    #[test]
    fn source_of_a_store_that_does_not_run_has_no_use() {
        for (line, expected) in [
            ("", None),
            ("--etcd 3.6 --kine module", None),
            ("--store kine-sqlite --kine v0.16.4", None),
            ("--kine v0.16.4", Some("--kine")),
            ("--store kine-nats --etcd 3.6", Some("--etcd")),
        ] {
            let given = Alone::try_parse_from(["x"].into_iter().chain(line.split_whitespace())).unwrap();
            assert_eq!(given.sources.without_use(), expected, "{line}");
        }
    }
}
