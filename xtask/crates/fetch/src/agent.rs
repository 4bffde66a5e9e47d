//! Agents of runners of CI: archives that are known by their digest alone.

use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::http::{Client, Job};

/// The archive at `url`, from the cache where it is there already. `sha256` in lower-case hexadecimal.
///
/// # Errors
/// No server has it, or what is there is another file.
pub fn agent(url: &str, sha256: &str, cache: &Path) -> anyhow::Result<PathBuf> {
    let dir = cache.join("agents");
    std::fs::create_dir_all(&dir)?;
    let to = dir.join(format!("{sha256}.tar.gz"));
    let job = Job {
        label: "the agent".into(),
        urls: vec![url.to_owned()],
        to: to.clone(),
        size: 0,
        sha256: Some(sha256.to_owned()),
    };
    if !Client::new()?.all("the agent", &[job])?.is_empty() {
        bail!("there is no agent at {url}");
    }
    Ok(to)
}
