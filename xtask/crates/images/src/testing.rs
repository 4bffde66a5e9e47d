//! Content for tests: image archives with any possible error.

use std::io::Write as _;
use std::path::Path;

use model::{Artifact, ByteOrder, ElfFacts, NoProcessor};
use serde_json::{Value, json};
use sys::Scratch;
use tar::{EntryType, Header};

use crate::{Rules, digest};

pub(crate) const RISCV: u16 = 243;
pub(crate) const X86: u16 = 62;
pub(crate) const BPF: u16 = 247;
pub(crate) const MACHINES: [(&str, u16); 2] = [("riscv64", RISCV), ("amd64", X86)];

/// Rules for two architectures.
pub(crate) fn rules(dir: &Scratch) -> Rules {
    let facts = |machine| ElfFacts { class: 64, byte_order: ByteOrder::Little, machine };
    Rules {
        elf: MACHINES.map(|(arch, machine)| (arch.to_owned(), facts(machine))).into(),
        no_processors: vec![NoProcessor { machine: BPF, name: "Linux BPF".into() }],
        allowed: Vec::new(),
        toolchains: model::Toolchains::default(),
        max_size: 1 << 20,
        cache: dir.path().join("cache"),
    }
}

/// A component that was built as this file.
pub(crate) fn artifact(component: &str, file: &Path, sha256: &str) -> Artifact {
    let artifact = json!({"component": component, "path": file, "sha256": sha256, "size": 1, "version": "v1.0.0",
        "source": {"kind": "module", "value": null}, "go": "", "step": "prebuilt"});
    serde_json::from_value(artifact).unwrap()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// The beginning of a little-endian 64-bit program.
pub(crate) fn elf(machine: u16) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(18, 0);
    bytes.extend(machine.to_le_bytes());
    bytes.resize(200, 7);
    bytes
}

/// An entry of a tar file; the path may be malicious.
pub(crate) fn entry(kind: EntryType, path: &str, target: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(0o755);
    header.set_size(content.len() as u64);
    let old = header.as_old_mut();
    old.name[..path.len()].copy_from_slice(path.as_bytes());
    old.linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_cksum();
    let mut out = [header.as_bytes(), content].concat();
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

pub(crate) fn file(path: &str, content: &[u8]) -> Vec<u8> {
    entry(EntryType::Regular, path, "", content)
}

/// A tar file of entries.
pub(crate) fn tar(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

/// The blobs of an OCI layout, by name in the archive, and the entries of `index.json`.
#[derive(Clone, Default)]
pub(crate) struct Layout {
    pub(crate) blobs: Vec<(String, Vec<u8>)>,
    pub(crate) listed: Vec<Value>,
}

impl Layout {
    /// Adds a blob and returns its descriptor.
    pub(crate) fn blob(&mut self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = digest::of(bytes);
        self.blobs.push((format!("blobs/sha256/{}", digest::digits(&digest).unwrap()), bytes.to_vec()));
        json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    }

    pub(crate) fn json(&mut self, media_type: &str, value: &Value) -> Value {
        self.blob(media_type, value.to_string().as_bytes())
    }

    /// Adds an image with these uncompressed layers and as many diff IDs, and returns its manifest's descriptor.
    pub(crate) fn image(&mut self, architecture: &str, layers: &[(&[u8], &[u8])]) -> Value {
        let diff_ids: Vec<String> = layers.iter().map(|(plain, _)| digest::of(plain)).collect();
        let config = json!({"architecture": architecture, "os": "linux",
            "config": {"Env": null}, "rootfs": {"type": "layers", "diff_ids": diff_ids}});
        let config = self.json("application/vnd.oci.image.config.v1+json", &config);
        let layers: Vec<Value> =
            layers.iter().map(|(_, packed)| self.blob("application/vnd.oci.image.layer.v1.tar", packed)).collect();
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers});
        self.json("application/vnd.oci.image.manifest.v1+json", &manifest)
    }

    /// Adds the descriptor to the index, for a platform.
    pub(crate) fn list(mut self, mut descriptor: Value, platform: Option<&str>) -> Layout {
        if let Some(architecture) = platform {
            descriptor["platform"] = json!({"architecture": architecture, "os": "linux"});
        }
        self.listed.push(descriptor);
        self
    }

    pub(crate) fn files(&self) -> Vec<(String, Vec<u8>)> {
        let index = json!({"schemaVersion": 2, "manifests": self.listed});
        let own = [("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#.to_owned()), ("index.json", index.to_string())];
        let own = own.map(|(name, text)| (name.to_owned(), text.into_bytes()));
        self.blobs.iter().cloned().chain(own).collect()
    }

    pub(crate) fn tar(&self) -> Vec<u8> {
        tar(&self.files().iter().map(|(name, bytes)| file(name, bytes)).collect::<Vec<_>>())
    }
}

/// A layout of one image with uncompressed layers.
pub(crate) fn layout(architecture: &str, layers: &[Vec<u8>]) -> Layout {
    let mut layout = Layout::default();
    let layers: Vec<(&[u8], &[u8])> = layers.iter().map(|layer| (layer.as_slice(), layer.as_slice())).collect();
    let image = layout.image(architecture, &layers);
    layout.list(image, None)
}

/// A docker archive of one image.
pub(crate) fn docker(architecture: &str, layers: &[Vec<u8>]) -> Vec<u8> {
    let diff_ids: Vec<String> = layers.iter().map(|layer| digest::of(layer)).collect();
    let config =
        json!({"architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": diff_ids}});
    let names: Vec<String> = (0..layers.len()).map(|number| format!("{number}/layer.tar")).collect();
    let manifest = json!([{"Config": "config.json", "RepoTags": ["example.org/a:1"], "Layers": names}]);
    let mut entries: Vec<Vec<u8>> = names.iter().zip(layers).map(|(name, layer)| file(name, layer)).collect();
    entries.push(file("config.json", config.to_string().as_bytes()));
    entries.push(file("manifest.json", manifest.to_string().as_bytes()));
    tar(&entries)
}
