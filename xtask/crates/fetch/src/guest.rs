//! The guest's own files: kernel, kernel modules, busybox, from packages of the guest's architecture.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use model::{Machine, Node};
use serde::{Deserialize, Serialize};

use crate::deb::{self, Unpacker};
use crate::elf;
use crate::tree::Tree;

/// The package of the guest's shell.
pub(crate) const BUSYBOX_PACKAGE: &str = "busybox-static";
const BUSYBOX: &str = "usr/bin/busybox";
const MODULES: &str = "usr/lib/modules/";
/// Bytes; the largest modules of Debian's kernels have 15 000 000.
const LARGEST_MODULE: u64 = 256 << 20;

/// The metadata of a tree: paths below its root.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Info {
    kernel: String,
    release: String,
    modules: Vec<String>,
    busybox: String,
}

/// A kernel module that is requested by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    name: &'a str,
    /// The list that contains it.
    by: &'static str,
    /// Whether the kernel may lack the module.
    optional: bool,
}

pub(crate) struct Files {
    pub(crate) kernel: PathBuf,
    pub(crate) release: String,
    pub(crate) modules: Vec<PathBuf>,
    pub(crate) busybox: PathBuf,
}

/// The modules of a guest, in load order: those of the machine, then those of a node.
pub(crate) fn modules<'a>(machine: &'a Machine, node: Option<&'a Node>) -> Vec<Asked<'a>> {
    let mut all = Vec::new();
    let mut add = |names: &'a [String], by, optional| {
        all.extend(names.iter().map(|name| Asked { name, by, optional }));
    };
    add(&machine.modules, "`machine.modules`", false);
    if let Some(node) = node {
        // An optional module must be loaded before a module that uses it without a hard dependency.
        add(&node.optional_modules, "`optional_modules`", true);
        add(&node.modules, "`modules` of targets/node.yaml, not `optional_modules`,", false);
    }
    all
}

impl Asked<'_> {
    /// Part of the name of a tree: a tree without an optional module does not suit a machine that requires the module.
    pub(crate) fn key(&self) -> String {
        if self.optional { format!("{}?", self.name) } else { self.name.to_owned() }
    }
}

/// Unpacks the kernel, the modules with their dependencies, and busybox.
pub(crate) fn unpack(asked: &[Asked<'_>], debs: &[PathBuf], tree: &mut Unpacker) -> anyhow::Result<String> {
    // Which modules are needed is known only after all of them are unpacked.
    let aside = tree.root().with_extension("all");
    let mut all = Unpacker::new(aside.clone());
    for deb in debs {
        all.unpack(deb, &wanted)?;
    }
    let kernel = only(&all, "kernel", is_kernel)?;
    let release = release(&all)?;
    let builtin = builtin(&all)?;
    let mut compressed = BTreeMap::new();
    for path in all.files.keys().filter(|path| path.starts_with(MODULES)) {
        if let Some(name) = module_name(path) {
            compressed.insert(name, path.clone());
        }
    }
    let mut order =
        Order { all: &all, release: &release, compressed, builtin, done: BTreeSet::new(), modules: Vec::new() };
    for Asked { name, by, optional } in asked {
        if !optional || order.has(name) {
            order.add(name, by)?;
        }
    }
    let mut modules = Vec::new();
    for (name, content) in &order.modules {
        let path = format!("modules/{name}.ko");
        tree.write(&path, &mut content.as_slice(), 0o644)?;
        modules.push(path);
    }
    let busybox = only(&all, BUSYBOX, |path| path == BUSYBOX)?;
    for (from, to, mode) in [(&kernel, "kernel", 0o644), (&busybox, "busybox", 0o755)] {
        let mut file = fs::File::open(aside.join(from)).with_context(|| format!("failed to read {from}"))?;
        tree.write(to, &mut file, mode)?;
    }
    fs::remove_dir_all(&aside).with_context(|| format!("failed to remove {}", aside.display()))?;
    let info = Info { kernel: "kernel".to_owned(), release, modules, busybox: "busybox".to_owned() };
    Ok(serde_json::to_string(&info)?)
}

/// The files of a tree that [`unpack`] made.
pub(crate) fn files(tree: &Tree) -> anyhow::Result<Files> {
    let info: Info = serde_json::from_str(&tree.info).context("the metadata in the cache is damaged")?;
    let below = |path: &String| tree.root.join(path);
    Ok(Files {
        kernel: below(&info.kernel),
        release: info.release.clone(),
        modules: info.modules.iter().map(below).collect(),
        busybox: below(&info.busybox),
    })
}

fn wanted(path: &str) -> bool {
    path.starts_with(MODULES) || path.starts_with("boot/vmlinu") || path == BUSYBOX
}

/// `boot/vmlinuz-RELEASE`, or since Debian 14 `usr/lib/modules/RELEASE/vmlinuz`.
fn is_kernel(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    path.starts_with("boot/vmlinu") || (path.starts_with(MODULES) && ["vmlinuz", "vmlinux"].contains(&name))
}

fn only(all: &Unpacker, what: &str, is: impl Fn(&str) -> bool) -> anyhow::Result<String> {
    let found: Vec<&String> = all.files.keys().filter(|path| is(path)).collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        _ => bail!("the packages hold {} files that could be the {what}, expected one: {found:?}", found.len()),
    }
}

fn release(all: &Unpacker) -> anyhow::Result<String> {
    let names = all.files.keys().filter_map(|path| path.strip_prefix(MODULES)?.split('/').next());
    let names: BTreeSet<&str> = names.collect();
    match names.into_iter().collect::<Vec<_>>().as_slice() {
        [one] => Ok((*one).to_owned()),
        many => bail!("the packages hold modules of {} kernels, expected one: {many:?}", many.len()),
    }
}

/// The modules that are part of the kernel itself.
fn builtin(all: &Unpacker) -> anyhow::Result<BTreeSet<String>> {
    let list = only(all, "list of built-in modules", |path| path.ends_with("/modules.builtin"))?;
    let text = fs::read_to_string(all.root().join(&list)).with_context(|| format!("failed to read {list}"))?;
    Ok(text.lines().filter_map(module_name).collect())
}

/// `kernel/drivers/net/virtio-net.ko.xz` -> `virtio_net`: `-` and `_` are equivalent in a module's name.
fn module_name(path: &str) -> Option<String> {
    let (name, _) = path.rsplit('/').next()?.split_once(".ko")?;
    Some(same(name))
}

fn same(name: &str) -> String {
    name.replace('-', "_")
}

/// Collects modules in an order in which they can be loaded.
struct Order<'a> {
    all: &'a Unpacker,
    /// The kernel's release.
    release: &'a str,
    /// Path by name.
    compressed: BTreeMap<String, String>,
    builtin: BTreeSet<String>,
    done: BTreeSet<String>,
    modules: Vec<(String, Vec<u8>)>,
}

impl Order<'_> {
    /// Whether the kernel has the module as a file.
    fn has(&self, module: &str) -> bool {
        self.compressed.contains_key(&same(module))
    }

    /// Adds a module after its dependencies.
    fn add(&mut self, module: &str, by: &str) -> anyhow::Result<()> {
        let name = same(module);
        if self.builtin.contains(&name) || !self.done.insert(name.clone()) {
            return Ok(());
        }
        let path = self.compressed.get(&name);
        let path = path.with_context(|| {
            format!(
                "the kernel {} has no module `{module}`, neither as a file nor built in; {by} needs it",
                self.release
            )
        })?;
        let content = decompressed(&self.all.root().join(path))?;
        for dependency in depends(&content).with_context(|| format!("failed to read the dependencies of {path}"))? {
            self.add(&dependency, &format!("`{module}`"))?;
        }
        self.modules.push((name, content));
        Ok(())
    }
}

/// The `depends=` entry of a module's `.modinfo`. Debian's packages contain no modules.dep; depmod makes it.
pub(crate) fn depends(module: &[u8]) -> anyhow::Result<Vec<String>> {
    let info = elf::section(module, ".modinfo")?;
    let entries = info.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let names: Vec<String> = entries
        .filter_map(|entry| entry.strip_prefix("depends=").map(str::to_owned))
        .flat_map(|list| list.split(',').map(str::to_owned).collect::<Vec<_>>())
        .filter(|name| !name.is_empty())
        .collect();
    Ok(names)
}

fn decompressed(path: &Path) -> anyhow::Result<Vec<u8>> {
    let read = || {
        let file = fs::File::open(path)?;
        let mut content = Vec::new();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("xz") => deb::decompressed(file, LARGEST_MODULE)?.read_to_end(&mut content)?,
            Some("ko") => { &file }.read_to_end(&mut content)?,
            _ => return Err(std::io::Error::other("its compression is not supported")),
        };
        Ok(content)
    };
    read().with_context(|| format!("failed to read the module {}", path.display()))
}
