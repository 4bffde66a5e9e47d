//! Entry points for the fuzz crate; no product code calls them. Each takes any bytes and panics on a defect.

use crate::audit::fuzzed;

#[doc(hidden)]
pub const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("images-archive", fuzzed::archive),
    ("images-docker", fuzzed::docker),
    ("images-files", fuzzed::files),
    ("images-layer", fuzzed::layer),
    ("images-oci", fuzzed::oci),
    ("images-unpack", fuzzed::unpack),
];
