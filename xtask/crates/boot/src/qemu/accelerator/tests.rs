//! Verdicts on recorded outputs of guests, and probes of a QEMU that is a shell script.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;

const SHORT: Limits = Limits { words: Duration::from_millis(200), boot: Duration::from_millis(400) };
const LONG: Limits = Limits { words: Duration::from_secs(60), boot: Duration::from_secs(60) };
const HELLO: &str = "[    0.000000] Linux version 6.12.107+deb13-cloud (debian-kernel@lists.debian.org)";
const NO_ROOT: &str =
    "[    0.6] Kernel panic - not syncing: VFS: Unable to mount root fs on \"\" or unknown-block(0,0)";
const OTHER_PANIC: &str = "[    0.1] Kernel panic - not syncing: IO-APIC + timer doesn't work!";
const EMULATION: &str =
    "KVM internal error. Suberror: 1\nextra data[0]: 0x0000000000000001\nemulation failure\nRAX=0000000001ad2b90";

/// The files of a VM whose QEMU is this script. It runs in the probe's folder.
fn files(dir: &Scratch, script: &str) -> MachineFiles {
    let program = dir.write("qemu-system", format!("#!/bin/sh\n{script}\n"));
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let emulator = json!({"command": ["/bin/sh", program], "version": "11.1.3", "origin": "debian"});
    let files = json!({"emulator": emulator, "kernel": "/kernel", "release": "6.12", "modules": [],
        "busybox": "/busybox", "digest": "d", "packages": []});
    serde_json::from_value(files).unwrap()
}

#[test]
fn guest_counts_only_if_its_kernel_reached_the_missing_root() {
    let both = |a: &str, b: &str| format!("{a}\n{b}\n");
    let ended = Some("exit status: 1");
    for (console, log, ended, late, expected) in [
        (both(HELLO, NO_ROOT), "", None, false, Ok(true)),
        (both(HELLO, NO_ROOT), "", Some("exit status: 0"), true, Ok(true)),
        (String::new(), "", None, false, Ok(false)),
        (both(HELLO, "[    0.1] x86/fpu: x87 FPU"), "", None, true, Ok(false)),
        (String::new(), "", None, true, Err("printed nothing; QEMU printed: nothing")),
        (String::new(), EMULATION, None, false, Err("KVM internal error. Suberror: 1")),
        (HELLO.to_owned(), EMULATION, None, false, Err("KVM internal error. Suberror: 1")),
        (HELLO.to_owned(), "error: kvm run failed Bad address", None, false, Err("kvm run failed Bad address")),
        (both(HELLO, OTHER_PANIC), "", ended, false, Err("timer doesn't work")),
        // A panic without the first line does not come from the kernel that was started.
        (NO_ROOT.to_owned(), "", None, false, Err("Kernel panic")),
        (
            String::new(),
            "-accel kvm: invalid accelerator kvm\n",
            ended,
            false,
            Err("1), its last line: -accel kvm: inv"),
        ),
        (HELLO.to_owned(), "", ended, false, Err("QEMU ended (exit status: 1), its last line: nothing")),
    ] {
        let found = match look(&console, log, ended, late) {
            Probe::Ready(()) => Ok(true),
            Probe::NotYet(_) => Ok(false),
            Probe::Hopeless(error) => Err(error.to_string()),
        };
        let same = match (&found, expected) {
            (Err(found), Err(expected)) => found.contains(expected),
            (found, expected) => found.as_ref().ok() == expected.as_ref().ok(),
        };
        assert!(same, "{console:?} {log:?} {ended:?} {late}: {found:?}, expected {expected:?}");
    }
}

#[test]
fn probe_leaves_no_process_and_no_folder() {
    let dir = Scratch::temporary("probe").unwrap();
    let root = dir.path();
    let pid = "echo $$ > ../../../pid";
    let hangs = "exec sleep 600";
    for (script, limits, expected) in [
        (format!("{pid}; printf '%s\\n%s\\n' '{HELLO}' '{NO_ROOT}' > console; {hangs}"), LONG, ""),
        (format!("{pid}; echo 'KVM internal error. Suberror: 1' >&2; {hangs}"), LONG, "Suberror: 1"),
        ("echo \"$0: -accel kvm: failed to initialize kvm\" >&2; exit 1".into(), LONG, "line: -accel kvm: failed"),
        (format!("{pid}; {hangs}"), SHORT, "its kernel printed nothing"),
    ] {
        let _ = std::fs::remove_file(root.join("pid"));
        let ended = try_guest(&files(&dir, &script), &[], root, limits);
        let text = ended.as_ref().err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(ended.is_ok() == expected.is_empty() && text.contains(expected), "{script}: {ended:?}");
        // A script that is killed early may not have written it.
        let pid = std::fs::read_to_string(root.join("pid")).ok().and_then(|text| text.trim().parse::<u32>().ok());
        if let Some(pid) = pid {
            assert!(!Path::new("/proc").join(pid.to_string()).exists(), "{script} still runs");
        }
        assert_eq!(std::fs::read_dir(root.join("run")).unwrap().count(), 0, "{script} left its folder");
    }
}

#[test]
fn cached_result_is_valid_only_for_the_same_files_and_arguments() {
    let dir = Scratch::temporary("known").unwrap();
    let (file, files) = (dir.path().join("kvm/x.json"), files(&dir, ""));
    let key = key(&files, &["-smp".into(), "2".into()]);
    assert!(key.iter().all(|part| !part.is_empty()), "{key:?}");
    assert_eq!(recall(&file, &key), None);
    let chosen = tcg("it was tried");
    remember(&file, Known { key: key.clone(), accelerator: chosen.clone() }).unwrap();
    assert_eq!(recall(&file, &key), Some(chosen));
    for index in 0..key.len() {
        let mut other = key.clone();
        other[index] = "other".into();
        assert_eq!(recall(&file, &other), None, "{}", key[index]);
    }
    std::fs::write(&file, "{").unwrap();
    assert_eq!(recall(&file, &key), None);
}

#[test]
fn error_of_the_device_contains_the_cure() {
    let dir = Scratch::temporary("device").unwrap();
    assert_eq!(opens(Path::new("/dev/null")), Ok(()));
    for (path, reason, cure) in [
        (dir.path().join("none"), "No such file", "modprobe"),
        // A folder cannot be opened for writing, not even by root.
        (dir.path().to_owned(), "directory", "dmesg"),
    ] {
        let no = opens(&path).unwrap_err();
        assert!(no.reason.contains(reason) && no.cure.contains(cure), "{no}");
    }
}
