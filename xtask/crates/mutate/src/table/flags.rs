//! Servers that were started with the wrong flags.

use super::{Means, Mutant};

pub(super) static MUTANTS: &[Mutant] = &[Mutant {
    id: "flags.json-for-protobuf",
    breaks: "Values of built-in resources are stored as JSON.",
    caught_by: "storage.media-type-protobuf",
    profile: "default",
    means: Means::Flags(&[("storage-media-type", "application/json")]),
}];
