//! `cargo xtask report schema`: the JSON Schema of results.json, generated from its types.

use cli::{Failure, print};
use model::Exit;
use report::Results;

pub(super) fn run() -> Result<Exit, Failure> {
    print(&Results::schema());
    Ok(Exit::Ok)
}
