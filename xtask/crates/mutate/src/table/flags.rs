//! Servers that were started with the wrong flags.

use super::{Means, Mutant};

type Flags = &'static [(&'static str, &'static str)];

pub(super) static MUTANTS: &[Mutant] = &[
    flags(
        "flags.json-for-protobuf",
        "Values of built-in resources are stored as JSON.",
        ("storage.media-type-protobuf", "default"),
        &[("storage-media-type", "application/json")],
    ),
    flags(
        "flags.protobuf-for-json",
        "The flag that asks for JSON is not obeyed.",
        ("storage.media-type-json", "json"),
        &[("storage-media-type", "")],
    ),
    flags(
        "flags.json-for-yaml",
        "The flag that asks for YAML is answered with JSON.",
        ("storage.media-type-yaml", "yaml"),
        &[("storage-media-type", "application/json")],
    ),
    flags(
        "flags.other-prefix",
        "Keys lie below another prefix than the default.",
        ("storage.key-layout", "default"),
        &[("etcd-prefix", "/elsewhere")],
    ),
    flags(
        "flags.prefix-ignored",
        "The flag that gives the prefix is not obeyed.",
        ("storage.etcd-prefix", "prefix"),
        &[("etcd-prefix", "")],
    ),
    flags(
        "flags.overrides-ignored",
        "Events are in the store of everything else.",
        ("storage.etcd-servers-overrides", "split-events"),
        &[("etcd-servers-overrides", "")],
    ),
    flags(
        "flags.event-ttl-ignored",
        "Events live for half as long as they should.",
        ("storage.event-lease", "default"),
        &[("event-ttl", "30m")],
    ),
    flags(
        "flags.leases-not-shared",
        "Every event has a lease of its own.",
        ("storage.lease-reuse", "prefix"),
        &[("lease-reuse-duration-seconds", "0")],
    ),
];

/// `caught_by` is a check and the profile on which it runs.
const fn flags(
    id: &'static str,
    breaks: &'static str,
    (caught_by, profile): (&'static str, &'static str),
    flags: Flags,
) -> Mutant {
    Mutant { id, breaks, caught_by, profile, means: Means::Flags(flags) }
}
