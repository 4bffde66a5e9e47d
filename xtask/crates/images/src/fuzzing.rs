//! Entry points for the fuzz crate and its replay test. Each takes any bytes and panics on a defect.

use crate::audit::fuzzed;

/// The name of a corpus, and a function that panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("images-archive", fuzzed::archive),
    ("images-docker", fuzzed::docker),
    ("images-files", fuzzed::files),
    ("images-layer", fuzzed::layer),
    ("images-oci", fuzzed::oci),
    ("images-unpack", fuzzed::unpack),
];
