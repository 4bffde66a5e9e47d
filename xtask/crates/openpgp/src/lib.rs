//! OpenPGP verification of clear-signed files. A run uses only this package's program: see `fetch::verified`.

#[doc(hidden)]
pub mod fuzzing;
mod signature;

pub use signature::Keys;
