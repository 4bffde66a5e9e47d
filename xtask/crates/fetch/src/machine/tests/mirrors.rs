//! Debian's public mirror followed by the snapshot archive. Both are folders of one server here.

use super::*;
use crate::mirror::Mirror;

/// Fetches the guest from a mirror below `live/`, and from snapshots below `snapshot/`.
fn guest_of_public(fixture: &Fixture) -> Result<(), String> {
    let run = || {
        let (pieces, mut locks) = pieces(&fixture.target, &[&fixture.target], &fixture.options)?;
        let mut states = known(&pieces, &locks, &fixture.options);
        let suites = locks.values().flat_map(Locks::suites);
        let [live, snapshots] = ["live", "snapshot"].map(|folder| format!("{}/{folder}", fixture.server.url));
        let mut archive = Archive::new(&fixture.options, suites.clone(), false);
        archive.mirror = Mirror::public(&live, &snapshots, suites);
        settle(&pieces, &mut states, &mut locks, &archive, &fixture.options)?;
        let gone = download(&pieces, &states, &archive, &fixture.options)?;
        if gone.is_empty() { Ok(()) } else { bail!("gone: {gone:?}") }
    };
    run().map_err(|error: anyhow::Error| format!("{error:#}"))
}

/// Publishes all files under other names as well, except those that `kept` does not select.
fn copy(fixture: &Fixture, folder: &str, kept: impl Fn(&str) -> bool) {
    let mut shared = fixture.server.shared.lock().unwrap();
    let published = shared.files.iter().filter(|(path, _)| path.starts_with("dists/") || path.starts_with("pool/"));
    let copied: Vec<_> = published
        .filter(|(path, _)| kept(path))
        .map(|(path, content)| (format!("{folder}/{path}"), content.clone()))
        .collect();
    shared.files.extend(copied);
}

/// The time of the snapshot that the lock names.
fn locked_time(fixture: &Fixture) -> String {
    let lock = crate::lock::Lock::load(&fixture.options.targets_dir.join("architectures/x.lock")).unwrap();
    lock.suites["test"].snapshot.clone()
}

#[test]
fn only_packages_missing_on_the_mirror_come_from_the_snapshot_of_the_lock() {
    let mut fixture = Fixture::new();
    lock(&fixture);
    fixture.options.locked = true;
    let snapshot = format!("snapshot/{}", locked_time(&fixture));
    copy(&fixture, "live", |path| !path.contains("busybox"));
    copy(&fixture, &snapshot, |path| path.contains("busybox"));
    fixture.asked();
    guest_of_public(&fixture).unwrap();
    let mut asked = fixture.asked();
    asked.retain(|path| path.starts_with("snapshot/"));
    assert_eq!(asked, [format!("{snapshot}/pool/main/busybox-static_1:1.37-6.deb")]);
}

#[test]
fn mirror_that_forbids_a_file_does_not_hide_the_snapshot() {
    let mut fixture = Fixture::new();
    lock(&fixture);
    fixture.options.locked = true;
    copy(&fixture, &format!("snapshot/{}", locked_time(&fixture)), |_| true);
    fixture.server.shared.lock().unwrap().forbidden = "live/".into();
    guest_of_public(&fixture).unwrap();
}

#[test]
fn index_of_the_locks_time_is_accepted_although_a_newer_one_was_seen() {
    let mut fixture = Fixture::new();
    lock(&fixture);
    copy(&fixture, &format!("snapshot/{}", locked_time(&fixture)), |_| true);
    // A newer index, which another target has used.
    let then = std::mem::replace(&mut fixture.date, Timestamp::now() + SignedDuration::from_hours(1));
    let files = fixture.server.shared.lock().unwrap().files.clone();
    fixture.publish();
    let target = Target { name: "y".into(), ..fixture.target.clone() };
    update_lock(&[&target], std::slice::from_ref(&target), &fixture.options, &[]).unwrap();
    fixture.server.shared.lock().unwrap().files = files;
    fixture.target.machine.as_mut().unwrap().kernel = "linux-image-6.1".into();
    guest_of_public(&fixture).unwrap();

    fixture.date = then - SignedDuration::from_hours(1);
    fixture.publish();
    copy(&fixture, &format!("snapshot/{}", locked_time(&fixture)), |_| true);
    fixture.options.cache = fixture.dir.path().join("other");
    let error = guest_of_public(&fixture).unwrap_err();
    assert!(error.contains("there is no suite test") && error.contains("older than the one of"), "{error}");
}
