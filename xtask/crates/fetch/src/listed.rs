//! Files that a list on a server names, each with its digest. The format of the list is the caller's.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use model::Size;
use sys::process::unique_name;
use sys::{cache_lock, store};

use crate::Options;
use crate::digest;
use crate::http::{Client, Job};

/// Where a list is, and where its files go.
pub struct Order<'a> {
    /// The address of the folder on the server.
    pub base: &'a str,
    /// The name of the list in it.
    pub name: &'a str,
    /// The digest that the list must have.
    pub sha256: Option<&'a str>,
    pub folder: &'a Path,
}

/// A file of a list.
pub struct Listed {
    /// Its name in the folder.
    pub name: String,
    pub sha256: String,
    /// Bytes.
    pub size: u64,
}

/// Downloads a list and the files that `wanted` finds in it. Offline, the list of an earlier download counts.
///
/// # Errors
/// The server lacks a file, a digest is another one, or `wanted` refuses the list.
pub fn listed(
    order: &Order<'_>,
    options: &Options,
    wanted: impl FnOnce(&str) -> anyhow::Result<Vec<Listed>>,
) -> anyhow::Result<()> {
    let Order { base, name, sha256, folder } = order;
    let url = |name: &str| format!("{}/{name}", base.trim_end_matches('/'));
    let list = folder.join(name);
    let client = Client::new()?;
    let text = if options.offline {
        fs::read_to_string(&list).with_context(|| format!("offline, and {} was not downloaded before", url(name)))?
    } else {
        client.text(&url(name))?.with_context(|| format!("there is no {}", url(name)))?
    };
    let found = digest::of_bytes(text.as_bytes());
    if let Some(expected) = sha256.filter(|expected| **expected != found) {
        bail!("{} has SHA-256 {found}, expected {expected}", url(name));
    }
    let files = wanted(&text).with_context(|| format!("{} is damaged", url(name)))?;
    ensure!(files.iter().all(|file| !file.name.contains('/')), "{} names a file in another folder", url(name));
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    // No other process removes a file until this one ends.
    cache_lock::shared(folder);
    let jobs: Vec<Job> = files
        .into_iter()
        .map(|file| Job {
            label: file.name.clone(),
            urls: vec![url(&file.name)],
            to: folder.join(&file.name),
            size: Size::Exact(file.size),
            sha256: Some(file.sha256),
        })
        .collect();
    if options.offline {
        return Ok(());
    }
    let gone = client.all("components", &jobs)?;
    if let Some(file) = gone.first() {
        bail!("{} is not there, but {} names it", file.display(), url(name));
    }
    // Last: the list of an incomplete download must not count offline.
    replace(&list, &text).with_context(|| format!("failed to write {}: {}", list.display(), store::hint()))
}

/// Replaces a file unless it is the same. Other processes read it and write it at the same time.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    if fs::read(file).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(());
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let draft = file.with_file_name(format!(".{name}-{}", unique_name()));
    fs::write(&draft, text).and_then(|()| fs::rename(&draft, file)).inspect_err(|_| drop(fs::remove_file(&draft)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fixture;

    const LIST: &str = "one first\ntwo second\n";

    /// Reads lines "NAME CONTENT".
    fn lines(text: &str) -> anyhow::Result<Vec<Listed>> {
        let line = |line: &str| {
            let (name, content) = line.split_once(' ').context("no space")?;
            let (sha256, size) = (digest::of_bytes(content.as_bytes()), content.len() as u64);
            Ok(Listed { name: name.to_owned(), sha256, size })
        };
        text.lines().map(line).collect()
    }

    fn serve(fixture: &Fixture, files: &[(&str, &str)]) {
        let files = files.iter().map(|(path, content)| ((*path).to_owned(), content.as_bytes().to_vec()));
        fixture.server.shared.lock().unwrap().files = files.collect();
    }

    fn get(fixture: &Fixture, sha256: Option<&str>) -> Result<(), String> {
        let folder = fixture.options.cache.join("exported/x");
        let order = Order { base: &fixture.server.url, name: "list", sha256, folder: &folder };
        listed(&order, &fixture.options, lines).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn files_of_the_list_are_downloaded_once_and_used_offline() {
        let mut fixture = Fixture::new();
        serve(&fixture, &[("list", LIST), ("one", "first"), ("two", "second")]);
        get(&fixture, Some(&digest::of_bytes(LIST.as_bytes()))).unwrap();
        let folder = fixture.options.cache.join("exported/x");
        assert_eq!(fs::read_to_string(folder.join("two")).unwrap(), "second");
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 3, "an unfinished file is left: {names:?}");
        assert_eq!(fixture.asked().len(), 3);
        get(&fixture, None).unwrap();
        assert_eq!(fixture.asked(), ["list"]);
        fixture.options.offline = true;
        get(&fixture, None).unwrap();
        assert!(fixture.asked().is_empty());
    }

    #[test]
    fn altered_and_missing_files_are_refused() {
        let mut fixture = Fixture::new();
        let refused = |files: &[(&str, &str)], sha256: Option<&str>, part: &str| {
            serve(&fixture, files);
            let error = get(&fixture, sha256).unwrap_err();
            assert!(error.contains(part), "expected {part:?} in: {error}");
            let list = fixture.options.cache.join("exported/x/list");
            assert!(!list.exists(), "the list of an incomplete download counts offline");
        };
        refused(&[], None, "there is no http://");
        refused(&[("list", "damaged")], None, "is damaged: no space");
        refused(&[("list", LIST)], Some("00"), "expected 00");
        refused(&[("list", "../one first\n")], None, "names a file in another folder");
        refused(&[("list", LIST), ("one", "first")], None, "is not there");
        refused(&[("list", LIST), ("one", "first"), ("two", "secone")], None, "expected SHA-256");
        refused(&[("list", LIST), ("one", "first"), ("two", "second and more")], None, "two");
        fixture.options.offline = true;
        assert!(get(&fixture, None).unwrap_err().contains("was not downloaded before"));
    }
}
