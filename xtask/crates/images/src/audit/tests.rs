//! Archives that are valid in every format, and one for each possible error.

use serde_json::{Value, json};
use sys::Scratch;
use tar::EntryType;

use super::*;
use crate::testing::{BPF, Layout, RISCV, X86, docker, elf, entry, file, gzip, layout, rules, tar, zstd};

fn audited(archive: &[u8]) -> Audit {
    let dir = Scratch::temporary("audit").unwrap();
    let file = dir.write("image.tar", archive);
    audit(&file, &rules(&dir)).unwrap()
}

/// Kinds and messages of all findings.
fn findings(archive: &[u8]) -> Vec<(Kind, String)> {
    let audit = audited(archive);
    audit.images.into_iter().flat_map(|image| image.findings).map(|f| (f.kind, f.message)).collect()
}

fn refused(name: &str, archive: &[u8], kind: Kind, part: &str) {
    let found = findings(archive);
    let told = found.iter().any(|(of, message)| *of == kind && message.contains(part));
    assert!(told, "{name}: `{part}` is missing in {found:?}");
}

/// Two layers with programs, a script and folders.
fn good() -> Vec<Vec<u8>> {
    let base = tar(&[
        entry(EntryType::Directory, "bin/", "", b""),
        file("bin/a", &elf(RISCV)),
        file("etc/script", b"#!/bin/sh\n"),
        entry(EntryType::Symlink, "bin/sh", "a", b""),
    ]);
    vec![base, tar(&[file("bin/b", &elf(RISCV)), entry(EntryType::Link, "bin/c", "bin/b", b"")])]
}

#[test]
fn image_is_read_in_every_format() {
    let mut packed = Layout::default();
    let layers = good();
    let (zipped, pressed) = (gzip(&layers[0]), zstd(&layers[1]));
    let image = packed.image("riscv64", &[(&layers[0], &zipped), (&layers[1], &pressed)]);
    let mut nested = Layout::default();
    let image_of_other = nested.image("riscv64", &[(&layers[0], &layers[0]), (&layers[1], &layers[1])]);
    let index = json!({"schemaVersion": 2, "manifests": [image_of_other]});
    let index = nested.json("application/vnd.oci.image.index.v1+json", &index);
    let plain = layout("riscv64", &layers).tar();
    for (name, archive) in [
        ("OCI layout", plain.clone()),
        ("compressed layers", packed.list(image, Some("riscv64")).tar()),
        ("an index in the index", nested.list(index, None).tar()),
        ("docker archive", docker("riscv64", &layers)),
        ("gzip", gzip(&plain)),
        ("zstd", zstd(&docker("riscv64", &layers))),
    ] {
        let Audit { images, notes } = audited(&archive);
        assert_eq!((images.len(), notes.len()), (1, 0), "{name}");
        let AuditedImage { architecture, layers, elf_files, findings, .. } = &images[0];
        assert_eq!((architecture.as_str(), *layers, *elf_files), ("riscv64", 2, 3), "{name}");
        assert_eq!(findings, &[], "{name}");
    }
}

#[test]
fn folder_is_read_as_well() {
    let dir = Scratch::temporary("audit").unwrap();
    for (name, bytes) in layout("riscv64", &good()).files() {
        dir.write(&format!("layout/{name}"), bytes);
    }
    let audit = audit(&dir.path().join("layout"), &rules(&dir)).unwrap();
    assert_eq!((audit.findings(), audit.elf_files()), (0, 3));
}

#[test]
fn programs_of_another_architecture_are_found_with_their_layer() {
    let hidden = vec![tar(&[file("usr/lib/helper", &elf(X86))]), tar(&[file("bin/a", &elf(RISCV))])];
    let found = audited(&layout("riscv64", &hidden).tar()).images.remove(0).findings;
    assert_eq!(found.len(), 1);
    let Finding { kind, layer, path, found, expected, message } = &found[0];
    assert_eq!((*kind, path.as_deref()), (Kind::Architecture, Some("/usr/lib/helper")));
    assert_eq!(layer.as_ref().map(|layer| layer.number), Some(0));
    assert_eq!(found.as_deref(), Some("machine 62 (EM_X86_64), 64 bit, little endian"));
    assert_eq!(expected.as_deref(), Some("machine 243 (EM_RISCV), 64 bit, little endian"));
    assert!(message.contains("/usr/lib/helper, of layer 0"), "{message}");

    let wrong = |bytes: &[u8]| findings(&layout("riscv64", &[tar(&[file("x", bytes)])]).tar()).len();
    let changed = |at: usize, byte: u8| {
        let mut bytes = elf(RISCV);
        bytes[at] = byte;
        bytes
    };
    for (name, bytes, expected) in [
        ("right", elf(RISCV), 0),
        ("32 bit", changed(4, 1), 1),
        ("big endian", changed(5, 2), 1),
        ("a version that no kernel looks at", changed(6, 9), 0),
        ("no class", changed(4, 7), 0),
        ("text", b"\x7fELF is a magic".to_vec(), 0),
        ("no processor", elf(BPF), 0),
    ] {
        assert_eq!(wrong(&bytes), expected, "{name}");
    }
}

#[test]
fn files_that_a_container_does_not_see_are_not_judged() {
    let wrong = tar(&[file("lib/helper", &elf(X86)), file("bin/a", &elf(RISCV))]);
    for (name, above, expected) in [
        ("nothing above", vec![], 1),
        ("whiteout", vec![file("lib/.wh.helper", b"")], 0),
        ("whiteout of another", vec![file("lib/.wh.helpers", b"")], 1),
        ("opaque folder", vec![file("lib/.wh..wh..opq", b"")], 0),
        ("replaced", vec![file("lib/helper", &elf(RISCV))], 0),
        ("another name of it", vec![entry(EntryType::Link, "lib/again", "lib/helper", b"")], 2),
    ] {
        assert_eq!(findings(&layout("riscv64", &[wrong.clone(), tar(&above)]).tar()).len(), expected, "{name}");
    }
    let dir = Scratch::temporary("audit").unwrap();
    let image = dir.write("image.tar", layout("riscv64", &[wrong]).tar());
    for (allowed, expected) in [("/lib/helper", 0), ("/lib/*", 0), ("/lib/help", 1), ("/usr/*", 1)] {
        let rules = Rules { allowed: vec![allowed.into()], ..rules(&dir) };
        assert_eq!(audit(&image, &rules).unwrap().findings(), expected, "{allowed}");
    }
}

/// Images with one error each that is not the architecture of a program.
type Violation = (&'static str, Vec<u8>, Kind, &'static str);

#[test]
fn every_error_of_an_archive_is_reported() {
    for (name, archive, kind, part) in damages().into_iter().chain(contradictions()).chain(bombs()) {
        refused(name, &archive, kind, part);
    }
}

fn damages() -> Vec<Violation> {
    let layer = good().remove(0);
    let one = |packed: &[u8]| {
        let mut layout = Layout::default();
        let image = layout.image("riscv64", &[(&layer, packed)]);
        layout.list(image, None)
    };
    let mut changed = layout("riscv64", std::slice::from_ref(&layer));
    let blob = changed.blobs.iter_mut().find(|(_, bytes)| *bytes == layer).unwrap();
    blob.1[1100] ^= 1;
    let mut missing = layout("riscv64", std::slice::from_ref(&layer));
    missing.blobs.retain(|(_, bytes)| *bytes != layer);
    let mut manifest = layout("riscv64", std::slice::from_ref(&layer));
    manifest.blobs.last_mut().unwrap().1.push(b' ');
    let mut config = layout("riscv64", std::slice::from_ref(&layer));
    config.blobs.remove(0);
    let mut escaping = layout("riscv64", std::slice::from_ref(&layer));
    escaping.listed[0]["digest"] = json!("sha256:../../../../etc/passwd");
    // The layer comes last.
    let mut files = layout("riscv64", std::slice::from_ref(&layer)).files();
    files.sort_by_key(|(_, bytes)| *bytes == layer);
    let whole = tar(&files.iter().map(|(name, bytes)| file(name, bytes)).collect::<Vec<_>>());
    let cut_off = whole[..whole.len() - 1024 - 600].to_vec();
    let mut saved = docker("riscv64", std::slice::from_ref(&layer));
    saved[512 + 1100] ^= 1;
    vec![
        ("a layer that is cut off", one(&layer[..1024 + 100]).tar(), Kind::Damaged, "cannot be unpacked"),
        ("a layer without its last file", one(&layer[..1536]).tar(), Kind::Damaged, "expected the diff ID"),
        ("a cut-off layer of gzip", one(&gzip(&layer)[..100]).tar(), Kind::Damaged, "cannot be unpacked"),
        ("a cut-off layer of zstd", one(&zstd(&layer)[..100]).tar(), Kind::Damaged, "cannot be unpacked"),
        ("another layer than the diff ID's", one(&good().remove(1)).tar(), Kind::Damaged, "expected the diff ID"),
        ("a changed layer", changed.tar(), Kind::Damaged, "has the digest"),
        ("a missing layer", missing.tar(), Kind::Damaged, "it is not in the archive"),
        ("a changed manifest", manifest.tar(), Kind::Damaged, "its digest is"),
        ("a missing configuration", config.tar(), Kind::Damaged, "the configuration"),
        ("a digest that is a path", escaping.tar(), Kind::Damaged, "it is not in the archive"),
        ("a docker archive with a changed layer", saved, Kind::Damaged, "expected the diff ID"),
        ("an archive that is cut off", cut_off, Kind::Damaged, "the archive ends in the middle of it"),
        ("no layer at all", one(b"no tar file at all").tar(), Kind::Damaged, "layer 0"),
    ]
}

fn contradictions() -> Vec<Violation> {
    let layer = tar(&[file("bin/a", &elf(RISCV))]);
    let listed = |architecture: &str, platform: Option<&str>| {
        let mut layout = Layout::default();
        let image = layout.image(architecture, &[(&layer, &layer)]);
        layout.list(image, platform).tar()
    };
    let mut both = Layout::default();
    let config = both.json("application/vnd.oci.image.config.v1+json", &json!({}));
    let ambiguous = json!({"schemaVersion": 2, "config": config, "layers": [], "manifests": []});
    let ambiguous = both.json("", &ambiguous);
    let mut deep = Layout::default();
    let mut descriptor = deep.json("", &json!({"schemaVersion": 2, "manifests": []}));
    for _ in 0..6 {
        descriptor = deep.json("", &json!({"schemaVersion": 2, "manifests": [descriptor]}));
    }
    vec![
        ("another architecture", listed("amd64", Some("riscv64")), Kind::Platform, "says riscv64"),
        ("the kernel's name", listed("x86_64", None), Kind::Platform, "`x86_64` is not one of the known architectures"),
        ("no architecture", listed("", None), Kind::Platform, "names no architecture"),
        ("index and manifest", both.list(ambiguous, None).tar(), Kind::Damaged, "an index and a manifest"),
        ("indexes of indexes", deep.list(descriptor, None).tar(), Kind::Damaged, "nested too deeply"),
    ]
}

fn bombs() -> Vec<Violation> {
    let one = |plain: &[u8], packed: &[u8]| {
        let mut layout = Layout::default();
        let image = layout.image("riscv64", &[(plain, packed)]);
        layout.list(image, None).tar()
    };
    let large = tar(&[file("zeroes", &vec![0; 2 << 20])]);
    // A name of two megabytes, as GNU tar writes long ones.
    let named = tar(&[entry(EntryType::GNULongName, "././@LongLink", "", &vec![b'a'; 2 << 20]), file("a", b"")]);
    let small = |entries: &[Vec<u8>]| layout("riscv64", &[tar(entries)]).tar();
    let long = "a/".repeat(2500);
    let long = tar(&[entry(EntryType::GNULongName, "././@LongLink", "", long.as_bytes()), file("a", &elf(RISCV))]);
    vec![
        ("a large layer", one(&large, &gzip(&large)), Kind::Size, "see --max-size"),
        ("a large layer of zstd", one(&large, &zstd(&large)), Kind::Size, "see --max-size"),
        ("a long name", one(&named, &gzip(&named)), Kind::Size, "see --max-size"),
        ("a path above the image", small(&[file("../../etc/passwd", b"x")]), Kind::Path, "../../etc/passwd leads out"),
        ("a path through a folder", small(&[file("a/../../b", &elf(X86))]), Kind::Path, "a/../../b leads out"),
        ("a link", small(&[entry(EntryType::Link, "a", "../b", b"")]), Kind::Path, "a is a link to a file outside"),
        ("a long path", layout("riscv64", &[long]).tar(), Kind::Path, "is longer than the limit of a path"),
    ]
}

#[test]
fn header_of_any_length_is_not_kept_in_memory() {
    let named = tar(&[entry(EntryType::GNULongName, "././@LongLink", "", &vec![b'a'; 2 << 20]), file("a", b"")]);
    let dir = Scratch::temporary("audit").unwrap();
    let image = dir.write("image.tar", layout("riscv64", &[named]).tar());
    let rules = Rules { max_size: 1 << 30, ..rules(&dir) };
    let found = audit(&image, &rules).unwrap().images.remove(0).findings;
    assert!(found[0].message.contains("the header of an entry is longer than"), "{found:?}");
}

#[test]
fn content_that_is_not_an_image_is_a_note() {
    let layer = tar(&[file("bin/a", &elf(RISCV))]);
    let mut layout = Layout::default();
    let image = layout.image("riscv64", &[(&layer, &layer)]);
    let mut attached = layout.image("unknown", &[(b"{}", b"{}")]);
    attached["annotations"] = json!({"vnd.docker.reference.type": "attestation-manifest"});
    let statement = layout.blob("application/vnd.in-toto+json", b"{}");
    let config = layout.json("application/vnd.oci.image.config.v1+json", &json!({}));
    let statement = json!({"schemaVersion": 2, "config": config, "layers": [statement]});
    let statement = layout.json("", &statement);
    let chart = layout.json("application/vnd.cncf.helm.config.v1+json", &json!({}));
    let chart = layout.json("", &json!({"schemaVersion": 2, "config": chart, "layers": []}));
    let absent: Value = json!({"mediaType": "", "digest": crate::digest::of(b"absent"), "size": 6,
        "platform": {"architecture": "amd64", "os": "linux"}});
    let index = json!({"schemaVersion": 2, "manifests": [image, attached, statement, chart, absent]});
    let index = layout.json("", &index);
    let Audit { images, notes } = audited(&layout.list(index, None).tar());
    assert_eq!((images.len(), images[0].findings.len()), (1, 0), "{images:?}");
    let parts = ["is attached", "not an image but application/vnd.in-toto", "vnd.cncf.helm", "for amd64, sha256:"];
    assert_eq!(notes.len(), parts.len(), "{notes:?}");
    for (note, part) in notes.iter().zip(parts) {
        assert!(note.contains(part), "{note}");
    }
}

#[test]
fn archives_without_an_image_are_refused() {
    let dir = Scratch::temporary("audit").unwrap();
    for (name, bytes, part) in [
        ("text", b"no archive".to_vec(), "not a tar file"),
        ("empty", Vec::new(), "not a tar file"),
        ("other", tar(&[file("a", b"b")]), "neither an index.json nor a manifest.json"),
    ] {
        let error = audit(&dir.write(name, bytes), &rules(&dir)).unwrap_err();
        assert!(error.is::<NoImage>() && error.to_string().contains(part), "{name}: {error:#}");
    }
    let error = audit(dir.path(), &rules(&dir)).unwrap_err();
    assert!(error.is::<NoImage>(), "{error:#}");
}

/// The header of a sparse file that is one hole of this size.
fn hole(size: u64) -> Vec<u8> {
    let number = |bytes: &mut [u8; 12]| {
        bytes[0] = 0x80;
        bytes[4..].copy_from_slice(&size.to_be_bytes());
    };
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(EntryType::GNUSparse);
    header.set_path("hole").unwrap();
    header.set_size(0);
    header.set_mode(0o644);
    let gnu = header.as_gnu_mut().unwrap();
    number(&mut gnu.sparse[0].offset);
    gnu.sparse[0].numbytes = *b"00000000000\0";
    number(&mut gnu.realsize);
    header.set_cksum();
    header.as_bytes().to_vec()
}

#[test]
fn small_layer_with_a_huge_hole_is_refused_at_once() {
    let layer = tar(&[hole(1 << 62)]);
    assert_eq!(layer.len(), 1536);
    refused("a hole", &layout("riscv64", &[layer]).tar(), Kind::Size, "see --max-size");
    assert_eq!(findings(&layout("riscv64", &[tar(&[hole(1 << 19)])]).tar()), [], "a small hole is fine");
}

#[test]
fn entry_that_claims_a_huge_size_is_refused_at_once() {
    for size in [1_u64 << 62, u64::MAX, u64::MAX - 511] {
        let record = format!(" size={size}\n");
        let record = format!("{}{record}", record.len() + 2);
        let extended = entry(EntryType::XHeader, "pax", "", record.as_bytes());
        let archive = layout("riscv64", &[tar(&[extended, file("a", &elf(RISCV))])]).tar();
        refused(&record, &archive, Kind::Damaged, "");
    }
}

#[test]
fn nested_lists_of_the_same_images_are_not_followed_for_hours() {
    let mut nested = Layout::default();
    let mut descriptor = nested.image("riscv64", &[]);
    for _ in 0..4 {
        let index = json!({"schemaVersion": 2, "manifests": vec![descriptor; 200]});
        descriptor = nested.json("application/vnd.oci.image.index.v1+json", &index);
    }
    refused("indexes", &nested.list(descriptor, None).tar(), Kind::Size, "a larger --max-size");
}

#[test]
fn repeatedly_listed_layer_is_not_read_for_hours() {
    let layer = tar(&[file("a", &[7; 100_000])]);
    let mut again = Layout::default();
    let image = again.image("riscv64", &vec![(layer.as_slice(), b"no layer".as_slice()); 20]);
    let small = findings(&again.list(image, None).tar());
    assert!(small.iter().all(|(kind, _)| *kind == Kind::Damaged), "{small:?}");
    let (mut again, large) = (Layout::default(), [1; 100_000]);
    let image = again.image("riscv64", &vec![(layer.as_slice(), large.as_slice()); 20]);
    refused("large layers", &again.list(image, None).tar(), Kind::Size, "see --max-size");
    let names: Vec<Value> = (0..2000).map(|_| json!("0/layer.tar")).collect();
    let saved = json!([{"Config": "config.json", "RepoTags": [], "Layers": names}]);
    let archive = tar(&[file("manifest.json", saved.to_string().as_bytes()), file("config.json", b"{}")]);
    refused("names", &archive, Kind::Size, "a larger --max-size");
}

#[test]
fn whiteouts_over_many_files_are_not_applied_for_hours() {
    let mut entries: Vec<Vec<u8>> = (0..400).map(|number| file(&format!("{number}"), &elf(RISCV))).collect();
    let good = entries.clone();
    entries.resize(900, file(".wh..wh..opq", b""));
    refused("whiteouts", &layout("riscv64", &[tar(&entries)]).tar(), Kind::Size, "a larger --max-size");
    let folders = (0..400).map(|_| entry(EntryType::Directory, "./", "", b""));
    let found = findings(&layout("riscv64", &[tar(&good.into_iter().chain(folders).collect::<Vec<_>>())]).tar());
    assert_eq!(found, []);
}

#[test]
fn compressed_archive_is_limited_and_leaves_no_files() {
    let dir = Scratch::temporary("audit").unwrap();
    let large = layout("riscv64", &[tar(&[file("zeroes", &vec![0; 2 << 20])])]).tar();
    let error = audit(&dir.write("large.tar.gz", gzip(&large)), &rules(&dir)).unwrap_err();
    assert!(format!("{error:#}").contains("see --max-size"), "{error:#}");
    let left = std::fs::read_dir(dir.path().join("cache/run")).unwrap().count();
    assert_eq!(left, 0);
}
