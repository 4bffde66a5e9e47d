//! Ctrl-C ends an audit in the middle of a layer. An interrupt concerns the whole process, so this test has its own
//! process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use images::Rules;
use sys::interrupt::{self, Interrupted};

/// A docker archive whose only layer is a sparse file: a hole of 4 EiB.
fn archive() -> Vec<u8> {
    let mut hole = tar::Header::new_gnu();
    hole.set_entry_type(tar::EntryType::GNUSparse);
    hole.set_path("hole").unwrap();
    hole.set_size(0);
    let gnu = hole.as_gnu_mut().unwrap();
    for number in [&mut gnu.sparse[0].offset, &mut gnu.realsize] {
        number[0] = 0x80;
        number[4..].copy_from_slice(&(1_u64 << 62).to_be_bytes());
    }
    gnu.sparse[0].numbytes = *b"00000000000\0";
    hole.set_cksum();
    let layer = [hole.as_bytes().as_slice(), &[0; 1024]].concat();
    let mut archive = tar::Builder::new(Vec::new());
    let manifest = br#"[{"Config": "c", "Layers": ["l"]}]"#.as_slice();
    let config =
        br#"{"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}"#.as_slice();
    for (name, content) in [("manifest.json", manifest), ("c", config), ("l", &layer)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, content).unwrap();
    }
    archive.into_inner().unwrap()
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the audit must be interrupted in the middle of the layer, and nothing signals that it is there"
)]
fn an_interrupt_ends_the_audit_of_a_layer_without_end() {
    let dir = sys::Scratch::temporary("interrupt").unwrap();
    let file = dir.write("image.tar", archive());
    interrupt::install().unwrap();
    let rules = Rules {
        elf: BTreeMap::new(),
        toolchains: model::Toolchains::default(),
        no_processors: Vec::new(),
        allowed: Vec::new(),
        max_size: u64::MAX,
        cache: dir.path().join("cache"),
    };
    let audited = std::thread::spawn(move || images::audit(&file, &rules));
    std::thread::sleep(Duration::from_millis(500));
    assert!(!audited.is_finished(), "4 EiB were read within half a second");
    let asked = Instant::now();
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT).unwrap();
    let error = audited.join().unwrap().unwrap_err();
    assert!(error.is::<Interrupted>(), "{error:#}");
    assert!(asked.elapsed() < Duration::from_secs(10));
}
