//! Servers with wrong flags.

use super::{Means, Mutant, mutants};

pub(super) static MUTANTS: &[Mutant] = mutants! { Means::Flags;
    "flags.json-for-protobuf": "The server stores built-in resources as JSON." => "storage.media-type-protobuf",
        &[("storage-media-type", "application/json")];
    "flags.protobuf-for-json": "The server ignores the flag that selects JSON." => "storage.media-type-json" on "json",
        &[("storage-media-type", "")];
    "flags.json-for-yaml": "The server stores JSON although the flag selects YAML." => "storage.media-type-yaml" on "yaml",
        &[("storage-media-type", "application/json")];
    "flags.other-prefix": "The server uses another key prefix than the default." => "storage.key-layout",
        &[("etcd-prefix", "/elsewhere")];
    "flags.prefix-ignored": "The server ignores the flag for the key prefix." => "storage.etcd-prefix" on "prefix",
        &[("etcd-prefix", "")];
    "flags.overrides-ignored": "The server keeps events in the store of all other resources." => "storage.etcd-servers-overrides" on "split-events",
        &[("etcd-servers-overrides", "")];
    "flags.event-ttl-ignored": "Events live half as long as they should." => "storage.event-lease",
        &[("event-ttl", "30m")];
    "flags.leases-not-shared": "Every event has a separate lease." => "storage.lease-reuse" on "prefix",
        &[("lease-reuse-duration-seconds", "0")];
};
