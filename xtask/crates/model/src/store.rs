//! The program that keeps the data of an apiserver.

use serde::{Deserialize, Serialize};

/// A program with etcd's API, and for kine its backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreKind {
    #[default]
    Etcd,
    KineSqlite,
    KineNats,
}

impl StoreKind {
    pub const ALL: [StoreKind; 3] = [StoreKind::Etcd, StoreKind::KineSqlite, StoreKind::KineNats];

    /// The name on the command line, in reports and in `expectations.yaml`.
    pub fn name(self) -> &'static str {
        match self {
            StoreKind::Etcd => "etcd",
            StoreKind::KineSqlite => "kine-sqlite",
            StoreKind::KineNats => "kine-nats",
        }
    }

    /// Its program in `components.yaml`, which is also the name of the program's set.
    pub fn component(self) -> &'static str {
        match self {
            StoreKind::Etcd => "etcd",
            StoreKind::KineSqlite | StoreKind::KineNats => "kine",
        }
    }

    /// Whether the store counts the writes of each key and skips no revision. kine does neither.
    pub fn counts_versions(self) -> bool {
        self == StoreKind::Etcd
    }

    /// The prefix of all keys that the store can be asked for. kine compares keys as texts and has no range without an
    /// end, so it is asked for the keys below a slash.
    pub fn root(self) -> &'static str {
        match self {
            StoreKind::Etcd => "",
            StoreKind::KineSqlite | StoreKind::KineNats => "/",
        }
    }

    /// The file below its data folder that is kept as evidence; None if there is no such file.
    pub fn data_file(self) -> Option<&'static str> {
        match self {
            StoreKind::Etcd => Some("member/snap/db"),
            StoreKind::KineSqlite => Some("state.db"),
            StoreKind::KineNats => None,
        }
    }

    /// Whether a component is the program of a store.
    pub fn has_program(component: &str) -> bool {
        StoreKind::ALL.iter().any(|kind| kind.component() == component)
    }
}
