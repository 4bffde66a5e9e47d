//! The whole stage up to the unpacked guest, with a small archive: refusals, repairs and new resolutions.

mod mirrors;
mod node;

use std::fs;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::testing::{Fixture, Package, kernel, key, signed};
use crate::update_lock;

/// Obtains the guest; an error's text includes all its causes.
fn guest(fixture: &Fixture) -> Result<(guest::Files, Vec<model::PackageUsed>), String> {
    let run = || {
        let (pieces, mut locks) = pieces(&fixture.target, &[&fixture.target], &fixture.options)?;
        let state = obtain(&pieces, &mut locks, &fixture.options)?.remove(0);
        let used = state.settled.context("settled")?.used().collect();
        Ok((guest::files(&state.tree.context("a tree")?)?, used))
    };
    run().map_err(|error: anyhow::Error| format!("{error:#}"))
}

/// Obtains the guest without any request.
fn guest_from_cache(fixture: &Fixture, why: &str) -> guest::Files {
    fixture.asked();
    let files = guest(fixture).unwrap().0;
    assert_eq!(fixture.asked(), Vec::<String>::new(), "{why}");
    files
}

fn lock(fixture: &Fixture) {
    let target = &fixture.target;
    let problems = update_lock(&[target], std::slice::from_ref(target), &fixture.options, &[]).unwrap();
    assert_eq!(problems, Vec::<String>::new());
}

fn refused(fixture: &Fixture, parts: &[&str]) {
    let error = guest(fixture).err().expect("it was not refused");
    for part in parts {
        assert!(error.contains(part), "`{part}` is missing in: {error}");
    }
    let left: Vec<String> = fixture.cached("debian/pool").into_iter().filter(|name| name.ends_with(".part")).collect();
    assert_eq!(left, Vec::<String>::new(), "incomplete files are left");
}

#[test]
fn signed_index_decides_without_a_lock_and_the_record_says_so() {
    let fixture = Fixture::new();
    let (files, used) = guest(&fixture).unwrap();
    let names: Vec<String> =
        files.modules.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(names, ["fail_over.ko", "virtio_net.ko"], "in load order, uncompressed, without built-in modules");
    assert_eq!((files.release.as_str(), fs::read(&files.kernel).unwrap().as_slice()), ("6.1", &b"kernel"[..]));
    assert_eq!(fs::read(&files.busybox).unwrap(), b"busybox");
    let used: Vec<(&str, bool)> = used.iter().map(|used| (used.name.as_str(), used.note.is_some())).collect();
    assert_eq!(used, [("busybox-static", true), ("linux-image-6.1", true), ("linux-image-x", true)]);
    guest_from_cache(&fixture, "cached files are not requested again");
}

#[test]
fn locked_packages_need_no_index() {
    let mut fixture = Fixture::new();
    lock(&fixture);
    fixture.asked();
    fixture.server.shared.lock().unwrap().files.retain(|path, _| path.starts_with("pool/"));
    fixture.options.locked = true;
    let (_, used) = guest(&fixture).unwrap();
    assert!(used.iter().all(|used| used.note.is_none()), "{used:?}");
    assert!(fixture.asked().iter().all(|path| path.starts_with("pool/")));
}

#[test]
fn incomplete_lock_is_refused_when_locked() {
    let mut fixture = Fixture::new();
    lock(&fixture);
    fixture.options.locked = true;
    // A lock that is older than its target file.
    fixture.target.machine.as_mut().unwrap().kernel = "linux-image-6.1".into();
    refused(&fixture, &["x.lock", "does not cover", "--locked", "--update-lock"]);
}

#[test]
fn tampered_package_is_refused_with_both_digests() {
    let fixture = Fixture::new();
    lock(&fixture);
    let path = fixture.paths("pool/main/busybox").remove(0);
    let good = digest::of_bytes(&fixture.server.shared.lock().unwrap().files[&path]);
    fixture.alter(&path, |deb| *deb.last_mut().unwrap() ^= 1);
    let bad = digest::of_bytes(&fixture.server.shared.lock().unwrap().files[&path]);
    refused(&fixture, &["busybox", &good, &bad, "refused"]);
    fixture.alter(&path, |deb| deb.extend(b"more"));
    refused(&fixture, &["busybox", "expected", "found more"]);
}

#[test]
fn tampered_index_is_refused_with_both_digests() {
    let fixture = Fixture::new();
    for path in fixture.paths("dists/test/main/") {
        fixture.alter(&path, |index| *index.last_mut().unwrap() ^= 1);
    }
    refused(&fixture, &["the index of test", "expected SHA-256", "found"]);
}

#[test]
fn index_that_is_only_at_the_plain_path_is_accepted() {
    let fixture = Fixture::new();
    fixture.server.shared.lock().unwrap().files.retain(|path, _| !path.contains("by-hash"));
    guest(&fixture).unwrap();
}

#[test]
fn release_without_a_trusted_signature_is_refused() {
    let in_release = "dists/test/InRelease";
    let text =
        |fixture: &Fixture| String::from_utf8(fixture.server.shared.lock().unwrap().files[in_release].clone()).unwrap();
    let with = |change: &dyn Fn(&str) -> String| {
        let fixture = Fixture::new();
        let changed = change(&text(&fixture));
        assert_ne!(changed, text(&fixture));
        fixture.alter(in_release, |bytes| *bytes = changed.clone().into_bytes());
        fixture
    };
    let signed_part = |text: &str| {
        let body = text.split_once("\n\n").unwrap().1;
        body.split_once("\n-----BEGIN PGP SIGNATURE").unwrap().0.to_owned()
    };
    refused(&with(&|text| text.replace("Origin: Test", "Origin: Evil")), &["refused", "no good signature"]);
    refused(&with(&|text| signed(&signed_part(text), &key())), &["no good signature", "trusted keys"]);
    refused(&with(&|text| signed_part(text)), &["not clear-signed"]);
    refused(&with(&|text| format!("Origin: Evil\n\n{text}")), &["not clear-signed"]);
    refused(&with(&|text| format!("{text}\nOrigin: Evil\n")), &["not clear-signed"]);
}

#[test]
fn release_of_another_suite_is_refused() {
    let mut fixture = Fixture::new();
    let shared = &fixture.server.shared;
    let release = shared.lock().unwrap().files["dists/test/InRelease"].clone();
    shared.lock().unwrap().files.insert("dists/other/InRelease".into(), release);
    fixture.target.machine.as_mut().unwrap().suites = vec!["other".into()];
    refused(&fixture, &["test/testing", "not of other"]);
}

#[test]
fn outdated_index_must_not_be_older_than_a_used_one() {
    let mut fixture = Fixture::new();
    fixture.date = Timestamp::now() - SignedDuration::from_hours(48);
    fixture.publish();
    refused(&fixture, &["was valid until", "--update-lock"]);

    lock(&fixture);
    fixture.packages[0].version = "6.1-1+b1".into();
    fixture.target.machine.as_mut().unwrap().modules.clear();
    fixture.publish();
    fixture.target.machine.as_mut().unwrap().kernel = "linux-image-6.1".into();
    let (_, used) = guest(&fixture).unwrap();
    let note = used[0].note.clone().unwrap_or_default();
    assert!(note.contains("past its Valid-Until"), "{note}");

    fixture.date -= SignedDuration::from_hours(1);
    fixture.publish();
    fixture.target.machine.as_mut().unwrap().kernel = "linux-image-x".into();
    fs::remove_file(fixture.options.targets_dir.join("architectures/x.lock")).unwrap();
    refused(&fixture, &["older than the one of", "--debian-mirror"]);
}

#[test]
fn valid_index_must_not_be_older_than_the_lock() {
    let mut fixture = Fixture::new();
    lock(&fixture);
    fixture.date -= SignedDuration::from_hours(1);
    fixture.publish();
    fixture.target.machine.as_mut().unwrap().kernel = "linux-image-6.1".into();
    refused(&fixture, &["older than the one of", "wait until the mirror is updated", "--debian-mirror"]);
}

#[test]
fn index_must_not_be_older_than_one_that_another_target_used() {
    let mut fixture = Fixture::new();
    guest(&fixture).unwrap();
    fixture.date -= SignedDuration::from_hours(1);
    fixture.publish();
    fixture.target.name = "y".into();
    refused(&fixture, &["older than the one of", "suites.lock"]);
    fixture.date += SignedDuration::from_hours(2);
    fixture.publish();
    guest(&fixture).unwrap();
}

#[test]
fn rotated_package_is_resolved_again_unless_locked() {
    let mut fixture = Fixture::new();
    lock(&fixture);
    fixture.packages.retain(|package| !package.name.starts_with("linux-image"));
    fixture.packages.extend(kernel("6.2"));
    fixture.publish();
    fixture.options.locked = true;
    refused(&fixture, &["no longer has", "linux-image-6.1", "--locked"]);

    fixture.options.locked = false;
    let (files, used) = guest(&fixture).unwrap();
    assert_eq!(files.release, "6.2");
    let note = |name: &str| used.iter().find(|used| used.name == name).unwrap().note.clone();
    assert_eq!(note("busybox-static"), None, "it is the locked package");
    assert!(note("linux-image-x").unwrap().contains("the locked 6.1-1 is no longer on the mirror"), "{used:?}");
    assert!(note("linux-image-6.2").unwrap().contains("not in the lock"), "{used:?}");
    guest_from_cache(&fixture, "the resolution is remembered");

    lock(&fixture);
    fixture.options.locked = true;
    let (files, used) = guest(&fixture).unwrap();
    assert_eq!((files.release.as_str(), used.iter().all(|used| used.note.is_none())), ("6.2", true));
}

#[test]
fn offline_lists_all_missing_files() {
    let mut fixture = Fixture::new();
    fixture.options.offline = true;
    refused(&fixture, &["--offline", "the packages of x guest", "not in the lock"]);
    fixture.options.offline = false;
    lock(&fixture);
    fixture.options.offline = true;
    fixture.asked();
    let parts = ["--offline", "busybox-static 1:1.37-6 x, 1 KiB", "linux-image-6.1", "3 packages, ", "KiB together"];
    refused(&fixture, &parts);
    assert_eq!(fixture.asked(), Vec::<String>::new());
    let plan = crate::plan(&fixture.target, &[&fixture.target], &fixture.options).unwrap();
    assert_eq!((plan.missing.len(), plan.unresolved.len()), (3, 0));
    assert_eq!(fixture.cached("debian/pool").len(), 0, "a plan writes nothing");

    fixture.options.offline = false;
    guest(&fixture).unwrap();
    fixture.options.offline = true;
    guest(&fixture).unwrap();
}

#[test]
fn broken_connection_is_retried_and_leaves_no_incomplete_file() {
    let fixture = Fixture::new();
    let path = fixture.paths("pool/main/busybox").remove(0);
    let cut = |times| fixture.server.shared.lock().unwrap().cut.insert(path.clone(), times);
    cut(1000);
    refused(&fixture, &["failed to download busybox-static"]);
    cut(1);
    guest(&fixture).unwrap();
}

#[test]
fn damaged_cache_is_repaired() {
    let fixture = Fixture::new();
    let (files, _) = guest(&fixture).unwrap();
    let alter = |path: &std::path::Path| {
        let mut content = fs::read(path).unwrap();
        *content.last_mut().unwrap() ^= 1;
        fs::write(path, content).unwrap();
    };
    alter(&files.kernel);
    let files_again = guest_from_cache(&fixture, "the packages were still good");
    assert_eq!(fs::read(files_again.kernel).unwrap(), b"kernel");

    fs::remove_file(&files.modules[0]).unwrap();
    let pool = fixture.options.cache.join("debian/pool");
    let largest = fs::read_dir(&pool).unwrap().flatten().max_by_key(|entry| entry.metadata().unwrap().len()).unwrap();
    alter(&largest.path());
    guest(&fixture).unwrap();
    assert_eq!(fixture.asked().len(), 1, "only the damaged package is downloaded again");

    let manifest = files.kernel.parent().unwrap().with_file_name("manifest");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, &text[..text.len() - 20]).unwrap();
    guest(&fixture).unwrap();
    assert_eq!(fs::read_to_string(&manifest).unwrap().lines().last(), Some("end"));
}

#[test]
fn copied_cache_is_valid() {
    let fixture = Fixture::new();
    let (files, _) = guest(&fixture).unwrap();
    let copy = files.kernel.with_extension("copy");
    fs::copy(&files.kernel, &copy).unwrap();
    fs::rename(&copy, &files.kernel).unwrap();
    let manifest = files.kernel.parent().unwrap().with_file_name("manifest");
    let before = fs::read_to_string(&manifest).unwrap();
    fs::remove_dir_all(fixture.options.cache.join("debian/pool")).unwrap();
    guest_from_cache(&fixture, "the copy is intact");
    assert_ne!(fs::read_to_string(&manifest).unwrap(), before, "the new inode is recorded");
}

#[test]
fn concurrent_processes_share_one_download() {
    let fixture = Fixture::new();
    lock(&fixture);
    fixture.asked();
    let kernels: BTreeSet<PathBuf> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(|| guest(&fixture).unwrap().0.kernel)).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(kernels.len(), 1);
    let mut asked = fixture.asked();
    asked.sort();
    assert_eq!(
        asked,
        fixture.paths("pool/main/busybox").into_iter().chain(fixture.paths("pool/main/linux")).collect::<Vec<_>>()
    );
    assert_eq!(fixture.cached("debian/trees").len(), 1);
}

#[test]
fn remains_of_a_killed_process_are_swept() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.options.cache.join("debian/trees/dead.part/files")).unwrap();
    fixture.dir.write("cache/debian/pool/dead.deb.part", "half");
    guest(&fixture).unwrap();
    for folder in ["debian/pool", "debian/trees"] {
        assert!(fixture.cached(folder).iter().all(|name| !name.contains("dead")), "{folder}");
    }
}

#[test]
fn set_that_cannot_be_resolved_stays_unchanged() {
    let mut fixture = Fixture::new();
    lock(&fixture);
    let file = fixture.options.targets_dir.join("architectures/x.lock");
    let before = fs::read_to_string(&file).unwrap();
    fixture.packages.retain(|package| package.name != "libc6");
    fixture.packages.push(Package::new("libc6", "1.9", "", &[]));
    fixture.publish();
    let problems = update_lock(&[&fixture.target], std::slice::from_ref(&fixture.target), &fixture.options, &[])
        .unwrap()
        .join("\n");
    assert!(problems.contains("`qemu-x` depends on `libc6 (>= 2)`"), "{problems}");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
}
