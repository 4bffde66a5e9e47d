//! Programs of the user (source `prebuilt`) and of an export, copied into the cache.
//!
//! A run starts a program many times, and a VM reads it minutes after its audit. Without the copy, a program that its
//! owner builds or exports again in the meantime would be tested under the version and digest of the audited one, and a
//! memory snapshot would contain it under that digest. The same happens to the download of an export: another run
//! replaces it when the server has a new one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sys::{cache_lock, store};

/// Below the cache.
const FOLDER: &str = "prebuilt";
const MODE: u32 = 0o755;

/// The copy of an audited program, made unless the cache has it. This process holds it until it ends.
pub(crate) fn copy(cache: &Path, name: &str, bytes: &[u8], sha256: &str) -> anyhow::Result<PathBuf> {
    let folder = cache.join(FOLDER).join(format!("{name}-{sha256}"));
    let file = folder.join(name);
    let is_intact = || cache_lock::shared(&folder) && fs::read(&file).is_ok_and(|found| found == bytes);
    if is_intact() {
        return Ok(file);
    }
    let claim = store::claim_folder(&folder)?;
    // Another process may have made it in the meantime.
    if !is_intact() {
        let draft = claim.path().join(name);
        let written =
            fs::write(&draft, bytes).and_then(|()| fs::set_permissions(&draft, fs::Permissions::from_mode(MODE)));
        written.with_context(|| format!("failed to write {}: {}", draft.display(), store::hint()))?;
        claim.publish()?;
        // It was made just now, so no process removes it before this hold.
        let _ = cache_lock::shared(&folder);
    }
    Ok(file)
}
