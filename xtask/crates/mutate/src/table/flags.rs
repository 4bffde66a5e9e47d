//! Servers with wrong flags.

use super::{Means, Mutant};

type Flags = &'static [(&'static str, &'static str)];

pub(super) static MUTANTS: &[Mutant] = &[
    flags(
        "flags.json-for-protobuf",
        "The server stores built-in resources as JSON.",
        ("storage.media-type-protobuf", "default"),
        &[("storage-media-type", "application/json")],
    ),
    flags(
        "flags.protobuf-for-json",
        "The server ignores the flag that selects JSON.",
        ("storage.media-type-json", "json"),
        &[("storage-media-type", "")],
    ),
    flags(
        "flags.json-for-yaml",
        "The server stores JSON although the flag selects YAML.",
        ("storage.media-type-yaml", "yaml"),
        &[("storage-media-type", "application/json")],
    ),
    flags(
        "flags.other-prefix",
        "The server uses another key prefix than the default.",
        ("storage.key-layout", "default"),
        &[("etcd-prefix", "/elsewhere")],
    ),
    flags(
        "flags.prefix-ignored",
        "The server ignores the flag for the key prefix.",
        ("storage.etcd-prefix", "prefix"),
        &[("etcd-prefix", "")],
    ),
    flags(
        "flags.overrides-ignored",
        "The server keeps events in the store of all other resources.",
        ("storage.etcd-servers-overrides", "split-events"),
        &[("etcd-servers-overrides", "")],
    ),
    flags(
        "flags.event-ttl-ignored",
        "Events live half as long as they should.",
        ("storage.event-lease", "default"),
        &[("event-ttl", "30m")],
    ),
    flags(
        "flags.leases-not-shared",
        "Every event has a separate lease.",
        ("storage.lease-reuse", "prefix"),
        &[("lease-reuse-duration-seconds", "0")],
    ),
];

/// `caught_by` is a check and its profile.
const fn flags(
    id: &'static str,
    breaks: &'static str,
    (caught_by, profile): (&'static str, &'static str),
    flags: Flags,
) -> Mutant {
    Mutant { id, breaks, caught_by, profile, means: Means::Flags(flags) }
}
