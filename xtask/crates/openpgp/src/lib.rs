//! OpenPGP verification of clear-signed files. Only the package's program is part of a run: see `fetch::verified`.

#[doc(hidden)]
pub mod fuzzing;
mod signature;

pub use signature::Keys;
