//! Entry points for the fuzz crate; no product code calls them. Each takes any bytes and panics on a defect.

use crate::audit::fuzzed;

#[doc(hidden)]
pub const TARGETS: &[(&str, fn(&[u8]))] = &[("images-unpack", fuzzed::unpack)];
