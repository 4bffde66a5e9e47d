//! What `targets/` says, read, checked and ready to be asked: architectures, component sets, profiles, storage tables.
//!
//! Reading ([`Catalogue::load`]) and parsing ([`Catalogue::parse`]) are apart, so that everything but the reading is a
//! pure function over text. A file is refused with one line per problem, all problems at once, each with its place in
//! the file. What the fields mean is written where they are declared, in `model`; which values are allowed, in `rules`.
//! Nothing here prints, and nothing here knows an architecture by name.

mod catalogue;
mod decode;
mod document;
mod nearest;
mod parse;
mod problem;
mod read;
mod rules;
mod table;
mod tree;

pub use catalogue::Catalogue;
pub use problem::{Invalid, Problem, Unknown};
pub use read::Files;
pub use table::{releases, table};
