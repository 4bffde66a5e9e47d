//! `cargo xtask report schema`: the JSON Schema of results.json, generated from its types.

use model::Exit;
use report::Results;

use crate::commands::print;
use crate::failure::Failure;

pub(super) fn run() -> Result<Exit, Failure> {
    print(&Results::schema());
    Ok(Exit::Ok)
}
