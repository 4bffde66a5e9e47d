//! What must not be seen: tokens, keys, configurations that hold keys.

pub use model::Secret;
