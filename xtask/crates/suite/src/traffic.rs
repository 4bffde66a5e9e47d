//! The workload under the whole-run judges: several writers and readers, watchers from every kind of start.

use crate::check::Stop;
use crate::ctx::Ctx;

pub(crate) async fn run(_ctx: &Ctx) -> Result<(), Stop> {
    Ok(())
}
