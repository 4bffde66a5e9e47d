//! `cargo xtask up`, `down`, `logs`.

use model::Exit;

use crate::args::{LogsOptions, NameOptions, UpOptions};
use crate::failure::Failure;
use crate::paths::Paths;

pub(crate) fn run(_paths: &Paths, _options: &UpOptions) -> Result<Exit, Failure> {
    Err(Failure::usage(anyhow::anyhow!("not yet")))
}
pub(crate) fn down(_paths: &Paths, _options: &NameOptions) -> Result<Exit, Failure> {
    Err(Failure::usage(anyhow::anyhow!("not yet")))
}
pub(crate) fn logs(_paths: &Paths, _options: &LogsOptions) -> Result<Exit, Failure> {
    Err(Failure::usage(anyhow::anyhow!("not yet")))
}
