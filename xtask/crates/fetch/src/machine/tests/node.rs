//! The packages and modules of a node: which are resolved, unpacked and left out, and that other pieces do not change.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use model::Node;

use super::*;
use crate::cache;
use crate::testing::{deb, target};

/// A host of another architecture, for which the archive has no packages.
fn host() -> Target {
    let mut host = Target { name: "h".into(), ..target() };
    host.machine.as_mut().unwrap().debian = "h".into();
    host
}

/// An archive with a program that needs a library, and a QEMU that only reports its version.
fn fixture() -> Fixture {
    let mut fixture = Fixture::new();
    let runs = deb("runs 1", |tar| {
        entry(tar, "usr/bin/runs", 0o755);
        entry(tar, "usr/share/doc/runs/copyright", 0o644);
        link(tar, "usr/bin/run", "runs");
    });
    let library = deb("libruns 1.2", |tar| {
        entry(tar, "lib/x/libruns.so.1.2", 0o644);
        entry(tar, "usr/lib/x/libruns.a", 0o644);
        entry(tar, "usr/lib/x/gconv/A.so", 0o644);
        entry(tar, "etc/runs.conf", 0o600);
        link(tar, "usr/lib/x/libruns.so.1", "libruns.so.1.2");
    });
    fixture.packages.extend([
        Package { deb: runs, ..Package::new("runs", "1", "libruns (>= 1) | other", &[]) },
        Package { deb: library, ..Package::new("libruns", "1.2", "", &[]) },
    ]);
    fixture.publish();
    let qemu = fixture.dir.write("qemu", "#!/bin/sh\necho QEMU emulator version 11.1.3\n");
    fs::set_permissions(&qemu, fs::Permissions::from_mode(0o700)).unwrap();
    fixture.target.machine.as_mut().unwrap().qemu.program = qemu.display().to_string();
    fixture.options.node = Some(Node {
        packages: vec!["runs".into()],
        leave_out: ["usr/share/*", "usr/lib/*/gconv/*", "*.a"].map(String::from).into(),
        modules: vec!["built-in".into(), "other".into()],
        optional_modules: vec!["gone".into()],
        ..Node::default()
    });
    fixture
}

fn entry(tar: &mut tar::Builder<Vec<u8>>, path: &str, mode: u32) {
    let mut header = tar::Header::new_gnu();
    header.set_size(path.len() as u64);
    header.set_mode(mode);
    tar.append_data(&mut header, format!("./{path}"), path.as_bytes()).unwrap();
}

fn link(tar: &mut tar::Builder<Vec<u8>>, path: &str, target: &str) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    tar.append_link(&mut header, format!("./{path}"), target).unwrap();
}

fn change(fixture: &mut Fixture, change: impl FnOnce(&mut Node)) {
    change(fixture.options.node.as_mut().unwrap());
}

fn obtained(fixture: &Fixture) -> Result<MachineFiles, String> {
    machine(&host(), &fixture.target, &fixture.options).map_err(|error| format!("{error:#}"))
}

fn modules(files: &MachineFiles) -> Vec<String> {
    files.modules.iter().map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect()
}

/// Every file and link below a folder, with its mode or its target.
fn listed(root: &Path, folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for found in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let data = fs::symlink_metadata(&found).unwrap();
        let path = found.strip_prefix(root).unwrap().display();
        if data.is_dir() {
            all.extend(listed(root, &found));
        } else if data.is_symlink() {
            all.push(format!("{path} -> {}", fs::read_link(&found).unwrap().display()));
        } else {
            all.push(format!("{path} {:o}", data.permissions().mode() & 0o7777));
        }
    }
    all.sort();
    all
}

#[test]
fn node_is_the_closure_of_its_packages_for_the_guest() {
    let fixture = fixture();
    let files = obtained(&fixture).unwrap();
    let root = files.node.clone().unwrap();
    let expected = [
        "etc/runs.conf 600",
        "usr/bin/run -> runs",
        "usr/bin/runs 755",
        "usr/lib/x/libruns.so.1 -> libruns.so.1.2",
        "usr/lib/x/libruns.so.1.2 644",
    ];
    assert_eq!(listed(&root, &root), expected, "links and modes are kept, and files that are left out are absent");
    assert_eq!(modules(&files), ["fail_over", "virtio_net", "other"], "the machine's own first");
    let names: Vec<&str> = files.packages.iter().map(|package| package.name.as_str()).collect();
    assert_eq!(names, ["busybox-static", "libruns", "linux-image-6.1", "linux-image-x", "runs"]);
    let asked = fixture.asked();
    assert!(asked.iter().any(|path| path.contains("binary-x")) && !asked.iter().any(|path| path.contains("binary-h")));
    assert!(cache::list(&fixture.options.cache).iter().any(|entry| entry.title == "x node" && entry.in_use));
}

#[test]
fn guest_without_a_node_is_unchanged() {
    let mut fixture = fixture();
    let node = fixture.options.node.take();
    let alone = obtained(&fixture).unwrap();
    assert_eq!((alone.node.as_ref(), modules(&alone)), (None, vec!["fail_over".to_owned(), "virtio_net".to_owned()]));
    fixture.options.node = node;
    let files = obtained(&fixture).unwrap();
    assert_ne!((&files.digest, &files.modules), (&alone.digest, &alone.modules));
    for change in [(|node: &mut Node| drop(node.leave_out.pop())) as fn(&mut Node), |node| node.modules.truncate(1)] {
        change(fixture.options.node.as_mut().unwrap());
        assert_ne!(obtained(&fixture).unwrap().digest, files.digest);
    }
    fixture.options.node = None;
    fixture.asked();
    assert_eq!(obtained(&fixture).unwrap(), alone);
    assert_eq!(fixture.asked(), Vec::<String>::new());
}

#[test]
fn only_an_optional_module_may_be_missing() {
    let mut fixture = fixture();
    obtained(&fixture).unwrap();
    change(&mut fixture, |node| node.optional_modules.push("other".into()));
    change(&mut fixture, |node| node.modules = vec!["fail-over".into()]);
    assert_eq!(
        modules(&obtained(&fixture).unwrap()),
        ["fail_over", "virtio_net", "other"],
        "an existing optional module is used"
    );
    // The same names as in the first tree, which lacks one module.
    change(&mut fixture, |node| node.modules = ["gone", "built-in", "other"].map(String::from).into());
    change(&mut fixture, |node| node.optional_modules.clear());
    let error = obtained(&fixture).unwrap_err();
    for part in ["x guest", "the kernel 6.1", "`gone`", "targets/node.yaml", "`optional_modules`"] {
        assert!(error.contains(part), "`{part}` is missing in: {error}");
    }
}

#[test]
fn package_that_the_archive_lacks_is_named() {
    let mut fixture = fixture();
    change(&mut fixture, |node| node.packages.push("nothing".into()));
    let error = obtained(&fixture).unwrap_err();
    assert!(error.contains("x node") && error.contains("no package `nothing` in test"), "{error}");
}

#[test]
fn set_missing_in_the_lock_is_resolved_from_the_index() {
    let mut fixture = fixture();
    let node = fixture.options.node.take();
    lock(&fixture);
    fixture.options.node = node;
    fixture.options.locked = true;
    let error = obtained(&fixture).unwrap_err();
    for part in ["x.lock", "does not cover x node", "--update-lock"] {
        assert!(error.contains(part), "`{part}` is missing in: {error}");
    }
    fixture.options.locked = false;
    let noted = |files: &MachineFiles| -> Vec<String> {
        files.packages.iter().filter(|package| package.note.is_some()).map(|package| package.name.clone()).collect()
    };
    let files = obtained(&fixture).unwrap();
    assert_eq!(noted(&files), ["libruns", "runs"], "locked packages stay");
    let note = files.packages.last().unwrap().note.clone().unwrap();
    assert!(note.contains("not in the lock; from the index of test"), "{note}");

    lock(&fixture);
    fixture.options.locked = true;
    assert_eq!(noted(&obtained(&fixture).unwrap()), Vec::<String>::new());
}

#[test]
fn offline_plan_and_bundle_include_the_node() {
    let mut fixture = fixture();
    let plan = |fixture: &Fixture| crate::plan(&host(), &[&fixture.target], &fixture.options).unwrap();
    assert_eq!(plan(&fixture).unresolved, ["x guest", "x node"]);
    lock(&fixture);
    assert_eq!((plan(&fixture).missing.len(), plan(&fixture).unresolved.len()), (5, 0));
    fixture.options.offline = true;
    let error = obtained(&fixture).unwrap_err();
    assert!(error.contains("libruns 1.2 x") && error.contains("5 packages, "), "{error}");

    fixture.options.offline = false;
    let file = fixture.dir.path().join("bundle.tar");
    crate::bundle(&host(), &[&fixture.target], &fixture.options, &file).unwrap();
    fixture.options.cache = fixture.dir.path().join("other");
    fixture.options.offline = true;
    let target = fixture.target.clone();
    assert_eq!(crate::import(&[target], &fixture.options, &file).unwrap(), 5);
    obtained(&fixture).unwrap();
}
