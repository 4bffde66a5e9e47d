//! `cargo xtask targets`: prints the architectures and the pinned releases as tables or JSON, or all errors in their
//! files.

use std::path::Path;

use cli::{Failure, JsonOptions, print, print_json};
use model::Exit;
use targets::Catalogue;

pub(crate) fn run(data: &Path, options: &JsonOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(data)?;
    if options.json {
        print_json(&catalogue)?;
    } else {
        print(&targets::table(&catalogue));
        print(&format!("\n{}", targets::releases(&catalogue)));
        print(&format!("\n{}", targets::variants(&catalogue)));
    }
    Ok(Exit::Ok)
}
