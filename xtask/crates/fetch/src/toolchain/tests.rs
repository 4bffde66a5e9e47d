//! The choice between both sources of Go, and Debian's Go up to the program in the cache, with a small archive.

use std::fs;

use super::*;
use crate::testing::{Fixture, Package};
use crate::update_lock;

/// A program that answers like `go env GOROOT GOVERSION`.
fn go(version: &str) -> Vec<u8> {
    format!("#!/bin/sh\necho \"${{0%/bin/go}}\"\necho go{version}\n").into_bytes()
}

/// An archive with Go in two packages, and an empty `go.lock`.
fn fixture(version: &str, program: &[u8]) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.target.go =
        Some(HostGo { suites: vec!["test".into()], package: "golang-go".into(), root: "usr/lib/go-1".into() });
    let full = format!("{version}-1~bpo13+1");
    let depends = format!("golang-src (>= {full})");
    let files = [("usr/lib/go-1/bin/go", program), ("usr/share/doc/golang/copyright", b"text")];
    let sources = [("usr/share/go-1/src/fmt.go", &b"package fmt"[..]), ("usr/share/go-1/test/x.go", b"package x")];
    fixture.packages.push(Package::new("golang-go", &full, &depends, &files));
    fixture.packages.push(Package::new("golang-src", &full, "", &sources));
    fixture.publish();
    fixture.dir.write("targets/go.lock", "# No toolchain.\n");
    fixture
}

fn lock(fixture: &Fixture) {
    let target = &fixture.target;
    let problems = update_lock(&[target], std::slice::from_ref(target), &fixture.options, &["go".into()]).unwrap();
    assert_eq!(problems, Vec::<String>::new());
}

fn fetched(fixture: &Fixture, needed: &str) -> Result<Go, String> {
    go_toolchain(&fixture.target, needed, None, &fixture.options).map_err(|error| format!("{error:#}"))
}

fn planned(fixture: &Fixture, needed: &str) -> Result<GoPlan, String> {
    go_plan(&fixture.target, needed, &fixture.options).map_err(|error| format!("{error:#}"))
}

#[test]
fn host_without_a_pinned_module_gets_the_locked_package() {
    let mut fixture = fixture("1.26.10", &go("1.26.10"));
    lock(&fixture);
    let plan = planned(&fixture, "1.26.0").unwrap();
    assert!(!plan.cached && plan.size > 0 && plan.version == "1.26.10", "{plan:?}");
    let found = fetched(&fixture, "1.26.0").unwrap();
    assert_eq!((found.version.as_str(), found.origin.as_str()), ("1.26.10", "Debian's package golang-go"));
    assert_eq!(fs::read(&found.program).unwrap(), go("1.26.10"));
    let files = found.program.ancestors().nth(5).unwrap();
    assert!(files.join("usr/share/go-1/src/fmt.go").exists());
    assert!(!files.join("usr/share/go-1/test").exists() && !files.join("usr/share/doc").exists());
    fixture.options.offline = true;
    fixture.asked();
    assert_eq!(fetched(&fixture, "1.26.10").unwrap(), found);
    assert!(planned(&fixture, "1.26.0").unwrap().cached);
    assert_eq!(fixture.asked(), Vec::<String>::new(), "a toolchain in the cache needs no request");
}

#[test]
fn other_content_than_the_locked_one_is_refused() {
    let mut fixture = fixture("1.26.10", &go("1.26.10"));
    lock(&fixture);
    let package = Package::new("golang-go", "1.26.10-1~bpo13+1", "", &[("usr/lib/go-1/bin/go", b"evil")]);
    fixture.alter(&package.path(), |deb| deb.clone_from(&package.deb));
    fixture.options.locked = true;
    fetched(&fixture, "1.26.0").unwrap_err();
    assert_eq!(fixture.cached("debian/trees").len(), 0, "files of a refused package are left");
}

#[test]
fn locked_package_that_is_too_old_is_refused_before_a_download() {
    let fixture = fixture("1.25.9", &go("1.25.9"));
    lock(&fixture);
    fixture.asked();
    for error in [fetched(&fixture, "1.26.0").unwrap_err(), planned(&fixture, "1.26.0").unwrap_err()] {
        assert!(error.contains("1.26.0 is needed") && error.contains("--update-lock --set go"), "{error}");
    }
    assert_eq!(fixture.asked(), Vec::<String>::new());
}

#[test]
fn program_that_does_not_run_from_the_cache_is_refused() {
    for (program, part) in [
        (&b"#!/bin/sh\necho /usr/lib/go-1\necho go1.26.10\n"[..], "its GOROOT is /usr/lib/go-1"),
        (b"#!/bin/sh\necho only one line\n", "two lines"),
        (b"#!/bin/sh\nexit 3\n", "3"),
    ] {
        let error = fetched(&fixture("1.26.10", program), "1.26.0").unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn lock_without_the_set_is_resolved_at_a_build_but_not_by_a_plan() {
    let fixture = fixture("1.26.10", &go("1.26.10"));
    assert!(planned(&fixture, "1.26.0").unwrap_err().contains("has no set `go`"));
    assert_eq!(fetched(&fixture, "1.26.0").unwrap().version, "1.26.10");
}

#[test]
fn host_without_any_source_of_go_is_told_to_install_it() {
    let mut fixture = fixture("1.26.10", &go("1.26.10"));
    fixture.target.go = None;
    assert!(fetched(&fixture, "1.26.0").unwrap_err().contains("names no toolchain for x"));
}

#[test]
fn pinned_module_wins_over_the_package() {
    let fixture = fixture("1.26.10", &go("1.26.10"));
    fixture.dir.write("targets/go.lock", "toolchain 1.26.8 x 7 h1:x\n");
    let plan = planned(&fixture, "1.26.0").unwrap();
    assert_eq!((plan.version.as_str(), plan.origin.as_str(), plan.size), ("1.26.8", MODULE, 7));
    assert!(fetched(&fixture, "1.26.0").unwrap_err().contains("set GOPROXY"));
}

#[test]
fn one_set_is_locked_without_touching_the_others() {
    let mut fixture = fixture("1.26.10", &go("1.26.10"));
    let target = fixture.target.clone();
    assert!(update_lock(&[&target], std::slice::from_ref(&target), &fixture.options, &[]).unwrap().is_empty());
    let file = lock_file(&fixture.options.targets_dir, "x");
    let before = fs::read_to_string(&file).unwrap();
    for package in fixture.packages.iter_mut().filter(|package| package.name != "golang-src") {
        package.version = package.version.replace("1.26.10", "1.26.11").replace("1.37-6", "1.37-7");
    }
    fixture.publish();
    lock(&fixture);
    let after = fs::read_to_string(&file).unwrap();
    assert!(before.contains("1.26.10") && after.contains("1.26.11") && !after.contains("1.37-7"), "{after}");

    fixture.date += jiff::SignedDuration::from_secs(60);
    fixture.publish();
    let problems = update_lock(&[&target], std::slice::from_ref(&target), &fixture.options, &["go".into()]).unwrap();
    assert!(problems[0].contains("without --set"), "{problems:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), after, "one index of a suite has to cover all its packages");

    let unknown =
        update_lock(&[&target], std::slice::from_ref(&target), &fixture.options, &["gone".into()]).unwrap_err();
    assert!(unknown.to_string().contains("`gone`"), "{unknown}");
}
