//! Whether a file is the requested program: ELF header, static linking, Go build information.
//!
//! Every binary passes through this audit, whatever its source, also one from the cache. The audit executes nothing, so
//! it does not judge what a running program answers (`/version`).

use std::path::Path;

use anyhow::bail;
use model::{ByteOrder, ComponentSet, Target, is_own_program};
use serde::{Deserialize, Serialize};

use crate::buildinfo::{self, BuildInfo};
use crate::elf::{self, Elf, Kind, machine_name};

/// The origin of the file. It decides what the build information must contain.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Origin {
    /// This crate built it, from this version of the module that contains the package.
    Module { version: String },
    /// This crate built it in a source tree, which has no module version.
    Checkout,
    /// The user provides it. Its package may differ, for example in a replacement for etcd, but must not be one of
    /// `other_packages`: then two files were mixed up. Build information is optional: not all programs are written in
    /// Go.
    Prebuilt { other_packages: Vec<String> },
}

pub(crate) struct Expected<'a> {
    pub(crate) target: &'a Target,
    pub(crate) component: &'a str,
    /// Import path of the main package.
    pub(crate) package: &'a str,
    /// `-tags`, comma separated.
    pub(crate) tags: &'a str,
    pub(crate) origin: &'a Origin,
}

/// Refuses a file that is not the requested program, and lists all differences. Otherwise returns its build
/// information.
pub(crate) fn audit(file: &Path, bytes: &[u8], expected: &Expected<'_>) -> anyhow::Result<Option<BuildInfo>> {
    let (differences, info) = match elf::parse(bytes) {
        Ok(elf) => {
            let mut differences = header(&elf, expected.target);
            let info = elf.go_data.map_or(Ok(None), buildinfo::parse);
            match &info {
                Ok(Some(info)) => differences.extend(build_info(info, expected)),
                Ok(None) if matches!(expected.origin, Origin::Prebuilt { .. }) => {}
                Ok(None) => differences.push("it has no Go build information".to_owned()),
                Err(error) => differences.push(error.clone()),
            }
            (differences, info.unwrap_or_default())
        }
        Err(error) => (vec![error], None),
    };
    if differences.is_empty() {
        return Ok(info);
    }
    bail!(
        "{} is not the requested {} for {}: {}",
        file.display(),
        expected.component,
        expected.target.name,
        differences.join("; ")
    )
}

/// The version that a prebuilt program reports, if its build information contains it.
pub(crate) fn recorded_version(info: &BuildInfo, set: &ComponentSet) -> Option<String> {
    // Without -trimpath Go records the linker flags, which set the version in a release build.
    let flags = info.settings.get("-ldflags").map(String::as_str).unwrap_or_default();
    let symbols = set.ldflags.iter().filter_map(|flag| flag.strip_suffix("{version}")?.split_whitespace().last());
    let written = symbols.flat_map(|symbol| flags.split_once(symbol)).find_map(|(_, after)| {
        let value = after.split([' ', '\'', '"']).next()?;
        (!value.is_empty()).then(|| value.to_owned())
    });
    // A program of this project prints the version of the set's main module, and its own module has no release.
    let module =
        if is_own_program(&info.path) { info.dependencies.get(&set.main_module) } else { Some(&info.module.version) };
    written.or_else(|| module.filter(|version| version.starts_with('v')).cloned())
}

fn header(elf: &Elf<'_>, target: &Target) -> Vec<String> {
    let (found, wanted) = (&elf.facts, &target.elf);
    let mut differences = Vec::new();
    let mut differ = |field: &str, found: String, wanted: String| {
        if found != wanted {
            differences.push(format!("{field} is {found}, expected {wanted}"));
        }
    };
    differ("ELF class", format!("{} bit", found.class), format!("{} bit", wanted.class));
    differ("ELF byte order", order(found.byte_order), order(wanted.byte_order));
    differ("ELF machine", machine_name(found.machine), machine_name(wanted.machine));
    if let Kind::Other(kind) = elf.kind {
        differences.push(format!("ELF type is {kind}, expected 2 or 3: a program"));
    }
    if let Some(interpreter) = &elf.interpreter {
        differences.push(format!("it is dynamically linked (interpreter {interpreter}), expected a static program"));
    }
    differences
}

fn order(order: ByteOrder) -> String {
    match order {
        ByteOrder::Little => "little endian".to_owned(),
        ByteOrder::Big => "big endian".to_owned(),
    }
}

fn build_info(info: &BuildInfo, expected: &Expected<'_>) -> Vec<String> {
    let mut differences = Vec::new();
    let mut differ = |field: &str, found: &str, wanted: &str| {
        if found != wanted {
            let found = if found.is_empty() { "not recorded" } else { found };
            differences.push(format!("{field} is {found}, expected {wanted}"));
        }
    };
    let setting = |name: &str| info.settings.get(name).map(String::as_str).unwrap_or_default();
    differ("GOOS", setting("GOOS"), "linux");
    differ("GOARCH", setting("GOARCH"), &expected.target.name);
    match expected.origin {
        Origin::Prebuilt { other_packages } => {
            if other_packages.contains(&info.path) {
                differ("main package", &info.path, expected.package);
            }
            // Otherwise the name of a variant would be in the report of an ordinary program.
            for (name, value) in expected.target.selected().into_iter().flat_map(|variant| &variant.go_env) {
                differ(name, setting(name), value);
            }
            return differences;
        }
        Origin::Module { version } => differ("module version", &info.module.version, version),
        Origin::Checkout => {}
    }
    differ("main package", &info.path, expected.package);
    differ("CGO_ENABLED", setting("CGO_ENABLED"), "0");
    differ("-trimpath", setting("-trimpath"), "true");
    if setting("-tags") != expected.tags {
        differences.push(format!("-tags is `{}`, expected `{}`", setting("-tags"), expected.tags));
    }
    for (name, value) in expected.target.go_env.iter().filter(|(name, _)| info.settings.contains_key(*name)) {
        if setting(name) != value {
            differences.push(format!("{name} is {}, expected {value}", setting(name)));
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::tests::tiny;

    const SERVER: &str = "go.etcd.io/etcd/server/v3";

    fn with_expected<T>(origin: &Origin, judge: impl FnOnce(&Expected<'_>) -> T) -> T {
        let target = "{name: riscv64, title: RISC-V, aliases: [], go_env: {GORISCV64: rva20u64},
                      elf: {class: 64, byte_order: little, machine: 243},
                      hardware: {page_sizes: [4096], weak_memory: true}}";
        let target = serde_yaml::from_str(target).unwrap();
        judge(&Expected { target: &target, component: "etcd", package: SERVER, tags: "", origin })
    }

    fn refusal(bytes: &[u8], origin: &Origin) -> Option<String> {
        with_expected(origin, |expected| audit(Path::new("dir/etcd"), bytes, expected).err().map(|e| e.to_string()))
    }

    fn prebuilt() -> Origin {
        Origin::Prebuilt { other_packages: vec!["go.etcd.io/etcd/etcdctl/v3".into()] }
    }

    #[test]
    fn wrong_header_is_reported_with_the_expected_value() {
        for (file, part) in [
            (tiny(64, ByteOrder::Little, 62), "ELF machine is 62 (EM_X86_64), expected 243 (EM_RISCV)"),
            (tiny(64, ByteOrder::Big, 243), "ELF byte order is big endian, expected little endian"),
            (tiny(32, ByteOrder::Little, 243), "ELF class is 32 bit, expected 64 bit"),
            (b"#!/bin/sh\n".to_vec(), "it is not an ELF file"),
        ] {
            let error = refusal(&file, &prebuilt()).unwrap();
            assert!(
                error.contains(part) && error.contains("dir/etcd is not the requested etcd for riscv64"),
                "{error}"
            );
        }
    }

    #[test]
    fn only_a_prebuilt_file_may_lack_build_information() {
        let file = tiny(64, ByteOrder::Little, 243);
        assert_eq!(refusal(&file, &prebuilt()), None);
        let error = refusal(&file, &Origin::Checkout).unwrap();
        assert!(error.contains("no Go build information"), "{error}");
    }

    fn info(path: &str, version: &str, settings: &[(&str, &str)]) -> BuildInfo {
        let settings = settings.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let module = buildinfo::Module { path: SERVER.into(), version: version.into() };
        BuildInfo { go: "go1.26.8".into(), path: path.into(), module, settings, ..BuildInfo::default() }
    }

    const OURS: &[(&str, &str)] = &[
        ("GOOS", "linux"),
        ("GOARCH", "riscv64"),
        ("CGO_ENABLED", "0"),
        ("-trimpath", "true"),
        ("GORISCV64", "rva20u64"),
    ];

    fn changed(name: &'static str, value: &'static str) -> Vec<(&'static str, &'static str)> {
        OURS.iter().map(|(n, v)| if *n == name { (name, value) } else { (*n, *v) }).collect()
    }

    #[test]
    fn build_information_must_match_the_request() {
        let module = Origin::Module { version: "v3.6.16".into() };
        for (found, origin, expected) in [
            (info(SERVER, "v3.6.16", OURS), &module, ""),
            (info(SERVER, "(devel)", OURS), &Origin::Checkout, ""),
            (info("example.org/kine", "v1.0.0", &changed("CGO_ENABLED", "1")), &prebuilt(), ""),
            (info(SERVER, "v3.6.15", OURS), &module, "module version is v3.6.15, expected v3.6.16"),
            (info("x.org/y", "v3.6.16", OURS), &module, "main package is x.org/y, expected go.etcd.io/etcd/server/v3"),
            (
                info("go.etcd.io/etcd/etcdctl/v3", "v3.6.16", OURS),
                &prebuilt(),
                "main package is go.etcd.io/etcd/etcdctl/v3, expected go.etcd.io/etcd/server/v3",
            ),
            (info(SERVER, "v3.6.16", &changed("GOARCH", "arm64")), &prebuilt(), "GOARCH is arm64, expected riscv64"),
            (info(SERVER, "v3.6.16", &changed("GOOS", "freebsd")), &module, "GOOS is freebsd, expected linux"),
            (info(SERVER, "v3.6.16", &changed("CGO_ENABLED", "1")), &module, "CGO_ENABLED is 1, expected 0"),
            (info(SERVER, "v3.6.16", &changed("-trimpath", "")), &module, "-trimpath is not recorded, expected true"),
            (
                info(SERVER, "", &changed("GORISCV64", "rva23u64")),
                &Origin::Checkout,
                "GORISCV64 is rva23u64, expected rva20u64",
            ),
        ] {
            let differences = with_expected(origin, |expected| build_info(&found, expected).join("; "));
            assert_eq!(differences, expected, "{found:?}");
        }
    }

    #[test]
    fn prebuilt_program_must_be_one_of_the_variant() {
        let origin = prebuilt();
        let base = with_expected(&origin, |expected| expected.target.clone());
        let variant = "{name: new, about: '', go_env: {GORISCV64: rva23u64}}";
        let target = Target { variants: vec![serde_yaml::from_str(variant).unwrap()], ..base };
        let target = target.with_variant("new").unwrap();
        let expected = Expected { target: &target, component: "etcd", package: SERVER, tags: "", origin: &origin };
        let old = build_info(&info(SERVER, "v3.6.16", OURS), &expected);
        assert_eq!(old, ["GORISCV64 is rva20u64, expected rva23u64"]);
        let new = build_info(&info(SERVER, "v3.6.16", &changed("GORISCV64", "rva23u64")), &expected);
        assert!(new.is_empty(), "{new:?}");
    }

    #[test]
    fn version_of_a_prebuilt_program_is_read() {
        let set = "{name: kubernetes, main_module: k8s.io/kubernetes, components: [],
                    ldflags: [-s, '-X k8s.io/component-base/version.gitVersion={version}']}";
        let set = serde_yaml::from_str(set).unwrap();
        let flags = "-s -X 'k8s.io/component-base/version.gitVersion=v1.37.0-rc.1' -X a=b";
        for (found, version) in [
            (info("p", "(devel)", &[("-ldflags", flags)]), Some("v1.37.0-rc.1")),
            (info("p", "v1.36.3", &[]), Some("v1.36.3")),
            (info("p", "(devel)", &[]), None),
        ] {
            assert_eq!(recorded_version(&found, &set).as_deref(), version);
        }
    }

    #[test]
    fn version_of_an_own_program_is_that_of_the_main_module_of_its_set() {
        let set = "{name: client, main_module: k8s.io/client-go, components: [], ldflags: [-s]}";
        let set = serde_yaml::from_str(set).unwrap();
        let mut found = info("archproof/programs/client", "v0.0.0", &[]);
        assert_eq!(recorded_version(&found, &set), None);
        found.dependencies.insert("k8s.io/client-go".into(), "v0.37.2".into());
        assert_eq!(recorded_version(&found, &set).as_deref(), Some("v0.37.2"));
        found.dependencies.insert("k8s.io/client-go".into(), String::new());
        assert_eq!(recorded_version(&found, &set), None, "a folder replaces the module");
    }
}
