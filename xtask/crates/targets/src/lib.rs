//! Reads, checks and answers lookups in `targets/`: architectures, component sets, profiles, storage tables.
//!
//! Reading ([`Catalogue::load`]) and parsing ([`Catalogue::parse`]) are separate, so that everything but reading is a
//! pure function over text. A file is refused with one line per problem, all problems at once, each with its position
//! in the file. `model` documents the fields where it declares them; `rules` checks which values are allowed. Nothing
//! here prints, and nothing here knows an architecture by name.

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
pub use table::{releases, table, variants};
