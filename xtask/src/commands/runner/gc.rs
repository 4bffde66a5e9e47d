//! `runner gc`: what earlier runs have left.

use ::runner::gc::{self, Deletion};
use ::runner::{Error, plain};
use jiff::Timestamp;
use proc::progress;
use serde_json::json;

use super::{Ended, shown, value, with_github};
use crate::args::RunnerGcOptions;

pub(super) fn run(options: &RunnerGcOptions) -> Result<u8, Ended> {
    with_github(&options.access, |github| {
        let runners = github.runners(None)?;
        let found = gc::runners(&runners, Timestamp::now(), options.older);
        let mut failed = None;
        let mut deleted: Vec<&Deletion> = Vec::new();
        for deletion in &found {
            let Ok(id) = deletion.id.parse() else { continue };
            match github.delete(id) {
                // The next one is shown as well.
                Err(Error::DryRun) => {}
                Err(error @ Error::Interrupted(_)) => return Err(error.into()),
                Err(error) => {
                    progress::say(&format!("runner {} stays: {error}", plain(&deletion.name)));
                    failed.get_or_insert(error.code());
                }
                Ok(_) => {
                    progress::say(&format!("runner {} is deleted: {}", plain(&deletion.name), deletion.why));
                    deleted.push(deletion);
                }
            }
        }
        let count = deleted.len();
        progress::say(&format!("{count} of {} runners deleted", runners.len()));
        let shown = shown(String::new(), json!({ "deleted": value(&deleted)?, "runners": runners.len() }));
        Ok(super::Shown { code: failed.unwrap_or(0), ..shown })
    })
}
