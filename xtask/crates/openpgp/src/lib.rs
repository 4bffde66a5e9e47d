//! OpenPGP verification of clear-signed files. Only the package's program is part of a run: see `fetch::verified`.

mod signature;

pub use signature::Keys;
