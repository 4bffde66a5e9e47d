//! The content of `targets/*.yaml` as values: architectures, component sets, control-plane profiles.
//!
//! The field comments are the reference for those files. Parsing and cross-file rules are in the `targets` crate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::store::StoreKind;

use crate::machine::Machine;
use crate::matrix::Ci;

/// One CPU architecture: `targets/architectures/<name>.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The GOARCH; also the file's name and the name used in reports.
    pub name: String,
    /// For people: "RISC-V, 64 bit".
    pub title: String,
    /// Other names that the command line accepts; one of them must be the output of `uname -m` on that architecture.
    pub aliases: Vec<String>,
    /// The required ELF header of every binary built for this target.
    pub elf: ElfFacts,
    /// How processors of this architecture differ from each other. Reports derive from it what a run could not show.
    pub hardware: Processors,
    /// Extra environment of `go build`: the variable that selects the instruction set level.
    #[serde(default)]
    pub go_env: BTreeMap<String, String>,
    /// The user-mode emulator for hosts of another architecture. None: `--provider process` works natively only.
    pub emulator: Option<Emulator>,
    /// The system VM of this architecture. None: `--provider qemu` cannot run it.
    pub machine: Option<Machine>,
    /// How the harness is built for machines of this architecture. None: `dist` has no archive for it.
    pub harness: Option<Harness>,
    /// Debian's Go for hosts of this architecture, where `targets/go.lock` has no toolchain. None: there is none.
    pub go: Option<HostGo>,
    /// Extra environment of a component on this architecture, by component name.
    #[serde(default)]
    pub component_env: BTreeMap<String, BTreeMap<String, String>>,
    /// Other processors and kernels than those that the fields above describe: `--cpu NAME`.
    #[serde(default)]
    pub variants: Vec<Variant>,
    /// The name of the variant that [`Target::with_variant`] has applied.
    #[serde(skip)]
    pub variant: Option<String>,
    /// The jobs of this architecture in CI. None: the matrix has none.
    pub ci: Option<Ci>,
}

/// `harness:` of a target file: the program of a release archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Harness {
    /// Rust's name of the target: `MACHINE-unknown-linux-gnu`.
    pub rust: String,
    /// The oldest glibc that the program runs with, major and minor version: "2.31".
    pub glibc: String,
    /// The oldest kernel that glibc runs on, major and minor version: "4.15".
    pub kernel: String,
}

/// `go:` of a target file: Go as Debian packages it for hosts of the architecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostGo {
    /// Debian suites of the package; it is taken from the first one that has it.
    pub suites: Vec<String>,
    /// The package with the programs; its dependencies have the rest.
    pub package: String,
    /// GOROOT in the packages, without a leading slash: `usr/lib/go-1.26`.
    pub root: String,
}

/// A processor or kernel of an architecture, as the fields that it replaces. One that is left out stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    pub name: String,
    /// One sentence: what is different, and why it may matter.
    pub about: String,
    /// Added to the environment of `go build`.
    #[serde(default)]
    pub go_env: BTreeMap<String, String>,
    /// `-cpu` of the user-mode emulator.
    pub user_cpu: Option<String>,
    /// `-cpu` of the system VM.
    pub machine_cpu: Option<String>,
    /// The kernel's package of the system VM.
    pub kernel: Option<String>,
}

impl Variant {
    /// Whether only the programs are different, so that they run on any processor and kernel of the architecture.
    pub fn is_only_a_build(&self) -> bool {
        !self.go_env.is_empty() && self.user_cpu.is_none() && self.machine_cpu.is_none() && self.kernel.is_none()
    }

    /// Whether a user-mode emulator can run programs as on this processor.
    pub fn fits_user_mode(&self) -> bool {
        self.kernel.is_none() && (self.user_cpu.is_some() || !self.go_env.is_empty())
    }
}

impl Target {
    /// The architecture with another processor or kernel. None: it has no variant of this name.
    pub fn with_variant(&self, name: &str) -> Option<Target> {
        let variant = self.variants.iter().find(|variant| variant.name == name)?;
        let mut target = Target { variant: Some(name.to_owned()), ..self.clone() };
        target.go_env.extend(variant.go_env.clone());
        if let Some(emulator) = &mut target.emulator {
            emulator.cpu = variant.user_cpu.clone();
        }
        if let Some(machine) = &mut target.machine {
            machine.qemu.cpu = variant.machine_cpu.clone().unwrap_or_else(|| machine.qemu.cpu.clone());
            machine.kernel = variant.kernel.clone().unwrap_or_else(|| machine.kernel.clone());
        }
        Some(target)
    }

    /// The variant that [`Target::with_variant`] has applied.
    pub fn selected(&self) -> Option<&Variant> {
        self.variants.iter().find(|variant| self.variant.as_ref() == Some(&variant.name))
    }

    /// The [labels](Target::label) of all variants.
    pub fn variant_labels(&self) -> impl Iterator<Item = String> {
        self.variants.iter().map(|variant| format!("{}-{}", self.name, variant.name))
    }

    /// The name for reports: the GOARCH, or `ARCH-VARIANT`.
    pub fn label(&self) -> String {
        match &self.variant {
            Some(variant) => format!("{}-{variant}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Whether a list of architectures names the one with this [label](Target::label): itself, or with all its variants. An
/// empty list names all.
pub fn names_arch(list: &[String], label: &str) -> bool {
    // No GOARCH contains a hyphen.
    let arch = label.split('-').next().unwrap_or(label);
    list.is_empty() || list.iter().any(|item| item == label || item == arch)
}

/// Expected ELF header fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElfFacts {
    /// 32 or 64.
    pub class: u8,
    pub byte_order: ByteOrder,
    /// `e_machine`: the number of an `EM_` constant of the System V gABI.
    pub machine: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ByteOrder {
    Little,
    Big,
}

/// `hardware:` of a target file: the differences between processors and kernels of one architecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processors {
    /// Bytes of a memory page in the kernels that distributions build for this architecture.
    pub page_sizes: Vec<u64>,
    /// Whether other processors may see two stores of a processor, or two of its loads, in another order.
    pub weak_memory: bool,
    /// Extensions that some processors lack, and that Go programs use where they exist.
    #[serde(default)]
    pub extensions: Vec<Extension>,
}

/// An instruction-set extension, and how it is detected: by exactly one of `flag`, `hwcap` and `hwcap2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extension {
    /// For people: "LSE (atomic instructions)".
    pub name: String,
    /// A word of the line `flags`, `features` or `isa` of `/proc/cpuinfo`. In `isa`, `_` separates words.
    pub flag: Option<String>,
    /// The number of a bit of `AT_HWCAP`, from 0.
    pub hwcap: Option<u8>,
    /// The number of a bit of `AT_HWCAP2`, from 0.
    pub hwcap2: Option<u8>,
    /// One sentence: which code of Go programs uses it.
    pub reason: String,
}

/// A qemu-user binary and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Emulator {
    /// Names to search on PATH, in order.
    pub commands: Vec<String>,
    /// The Debian package to install when none is found.
    pub package: String,
    /// Oldest version known to work, "MAJOR.MINOR".
    pub minimum: Option<String>,
    /// Why this is the minimum: the symptom with an older version.
    pub reason: Option<String>,
    /// `-cpu`, from the selected variant. None: the emulator's default.
    #[serde(skip)]
    pub cpu: Option<String>,
}

/// `targets/components.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Components {
    pub sets: Vec<ComponentSet>,
    /// Lists of components across the sets.
    #[serde(default)]
    pub groups: Vec<ComponentGroup>,
}

/// Components that are requested together: `--set NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentGroup {
    /// A name that no set has.
    pub name: String,
    /// The purpose of the components.
    pub summary: String,
    pub components: Vec<String>,
}

impl Components {
    /// The components of a group, or all components of a set, including optional ones. None: the name is unknown.
    pub fn named(&self, name: &str) -> Option<Vec<String>> {
        let group = self.groups.iter().find(|group| group.name == name).map(|group| group.components.clone());
        let set = || self.sets.iter().find(|set| set.name == name);
        group.or_else(|| Some(set()?.components.iter().map(|component| component.name.clone()).collect()))
    }
}

/// How the Go modules of the project's own programs begin.
const OWN_PROGRAMS: &str = "archproof/programs/";

/// Whether a Go module or package is one of the project's own programs.
pub fn is_own_program(path: &str) -> bool {
    path.starts_with(OWN_PROGRAMS)
}

/// Components that share one Go module, one version and one `--<name> SPEC` flag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentSet {
    /// `kubernetes` or `etcd`: also the folder of the Go module, see [`ComponentSet::folder`].
    pub name: String,
    /// The module whose required version is the version of the set.
    pub main_module: String,
    /// The commit of the tag of `main_module`'s pinned version, if it is known; a Go module proxy does not report it.
    pub commit: Option<String>,
    /// Linker flags; `{version}`, `{major}`, `{minor}`, `{commit}`, `{tree_state}`, `{date}` are filled in.
    pub ldflags: Vec<String>,
    #[serde(default)]
    pub tags: Vec<String>,
    /// Folder below `main_module`'s checkout whose modules replace `v0.0.0` requirements: `staging/src/k8s.io`.
    pub staging: Option<String>,
    /// The set that decides which version this one has, by its default release or, if this set has releases, by the one with
    /// the same number of the minor; `pins` then only names newer versions.
    pub follows: Option<String>,
    /// How many of the newest minors upstream supports, 1 by default: `pins check` fails if one of them stays unpinned.
    pub supported_minors: Option<usize>,
    /// Versions that stay unpinned for now.
    pub held: Option<Held>,
    /// The minor releases that are pinned: `--<name> MINOR`. Empty: only the folder named after the set.
    #[serde(default)]
    pub releases: Vec<Release>,
    pub components: Vec<Component>,
}

/// From which version on a set is not updated, and why. `pins bump --to` still takes these versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// "0.17" or "0.16.6".
    pub from: String,
    /// What a newer release does wrong, for the table of `pins check`.
    pub reason: String,
}

/// A minor release that has its own Go module below `targets/components/`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// "1.36".
    pub minor: String,
    /// The version of `main_module` that the module requires: "v1.36.3".
    pub version: String,
    /// The folder; the release in the folder named after the set is the default.
    pub module: String,
    /// Flags, by their current names, that this release calls `--experimental-NAME`.
    #[serde(default)]
    pub experimental_flags: Vec<String>,
    /// Parts of comma-separated flag values that are left out, because this release exits when it reads an unknown one.
    #[serde(default)]
    pub unknown_values: Vec<String>,
}

impl ComponentSet {
    /// The folder of one of its Go modules, below `targets/`: `programs/guest` for a program of this project, otherwise
    /// `components/etcd-3.5`, which only pins versions. A program of this project with several releases has such pins, too.
    pub fn folder(&self, module: &str) -> PathBuf {
        let own = self.releases.is_empty() && self.has_own_program();
        Path::new(if own { "programs" } else { "components" }).join(module)
    }

    /// Whether one of its components is a program of this project.
    pub fn has_own_program(&self) -> bool {
        self.components.iter().any(|component| is_own_program(&component.package))
    }

    /// The pinned release of the same minor as this version: `v1.36.3`, `1.36.3` or `1.36`.
    pub fn release(&self, version: &str) -> Option<&Release> {
        let minor = minor_of(version);
        self.releases.iter().find(|release| release.minor == minor)
    }

    /// Whether its main module is one of the project's own programs, and not a module of upstream.
    pub fn is_own(&self) -> bool {
        is_own_program(&self.main_module)
    }

    /// The default release.
    pub fn default_release(&self) -> Option<&Release> {
        self.releases.iter().find(|release| release.module == self.name)
    }
}

/// `v1.36.3` to `1.36`.
pub fn minor_of(version: &str) -> String {
    version.trim_start_matches('v').split('.').take(2).collect::<Vec<_>>().join(".")
}

/// `1.36` as numbers.
pub(crate) fn minor_numbers(minor: &str) -> Option<(u32, u32)> {
    let (major, minor) = minor.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Whether the version is only a minor, `v1.36`, and not a published release, `v1.36.3`.
pub fn is_minor(version: &str) -> bool {
    version.trim_start_matches('v').split('.').count() == 2
}

/// One program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// The file name of the binary.
    pub name: String,
    /// The import path given to `go build`.
    pub package: String,
    /// For `checkout:PATH`: the folder below PATH in which `go build` runs.
    pub checkout_dir: Option<String>,
    /// Built only when requested by name; a boot does not need it.
    #[serde(default)]
    pub optional: bool,
}

/// A control-plane configuration under which checks run: an entry of `targets/profiles.yaml`.
///
/// In flags and files `{run}` is the profile's private folder and `{store.NAME}` the URL of a store of the profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    pub name: String,
    /// One sentence: the difference from `default`, and the checks that need it.
    pub summary: String,
    /// kube-apiserver flags added to, or replacing, the common ones: name without dashes to value.
    #[serde(default)]
    pub apiserver: BTreeMap<String, String>,
    /// Environment variables of the apiservers and stores.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Files written below `{run}` before the start, by relative name; `{key32}` is a fresh random 32-byte key, base64,
    /// and `{file.NAME}` the content of another one of these files.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Programs that run next to the apiserver and start before it.
    #[serde(default)]
    pub plugins: Vec<ProfilePlugin>,
    /// Controllers of a kube-controller-manager for this profile: the component `PROFILE/kube-controller-manager`,
    /// which does not run before a check starts it. If the list is empty, the component does not exist.
    #[serde(default)]
    pub controllers: Vec<String>,
    /// Whether the profile has a kube-scheduler: the component `PROFILE/kube-scheduler`, which does not run before the
    /// harness starts it.
    #[serde(skip)]
    pub scheduler: bool,
    /// Whether the profile has another, empty etcd: the component `PROFILE/etcd-spare`, which does not run before a
    /// check starts it, and whose history is not recorded.
    #[serde(default)]
    pub spare: bool,
    /// Components that checks run to completion, such as etcdutl.
    #[serde(default)]
    pub tools: Vec<String>,
    /// The first store is the one in `--etcd-servers`.
    #[serde(default = "one_store")]
    pub stores: Vec<ProfileStore>,
    /// Apiservers on the same stores; the second one is the component `kube-apiserver-2`.
    #[serde(default = "one")]
    pub apiservers: u8,
    /// Further apiservers on the same stores, by name: the component `kube-apiserver-NAME`. Each has the flags of the
    /// profile's own apiserver, and these in addition or instead. It runs only while a check uses it.
    #[serde(default)]
    pub variants: BTreeMap<String, BTreeMap<String, String>>,
    /// The variant whose program is that of the minor before the one under test: the program `kube-apiserver-previous`.
    /// A run for which no such release is pinned has no such variant.
    pub previous: Option<String>,
    /// Storage prefix, `--etcd-prefix`.
    #[serde(default = "default_prefix")]
    pub prefix: String,
}

/// One store of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileStore {
    pub name: String,
    /// `group/resource` (core: `/events`) kept in this store through `--etcd-servers-overrides`; empty: all others.
    #[serde(default)]
    pub resources: Vec<String>,
    /// Members of the cluster; with more than one they are the components `etcd-STORE-1`, `etcd-STORE-2`, ….
    #[serde(default = "one")]
    pub members: u8,
    /// How many minors before the one under test the members start with; checks change them to the next minor and back. At
    /// most [`EARLIER_MINORS`](crate::EARLIER_MINORS), and not more than pinned releases exist.
    #[serde(default)]
    pub earlier: u8,
    /// etcd flags added to the common ones: name without dashes to value.
    #[serde(default)]
    pub flags: BTreeMap<String, String>,
    /// A program that is started in place of the store's program, and then executes it.
    pub wrapper: Option<StoreWrapper>,
    /// The store program, selected on the command line for all profiles.
    #[serde(skip)]
    pub kind: StoreKind,
}

/// The program that precedes a store's program on the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreWrapper {
    /// The component of `components.yaml` that it runs.
    pub component: String,
    /// Arguments between its program and the store's.
    #[serde(default)]
    pub arguments: Vec<String>,
}

/// A program next to an apiserver. It is started with the address of its `/readyz` over HTTPS: `--listen`,
/// `--cert-file` and `--key-file`. A program that relays a store gets only `--listen`, because the store answers
/// through it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfilePlugin {
    /// Its name in the profile: the component is `PROFILE/NAME`.
    pub name: String,
    /// The component of `components.yaml` that it runs.
    pub component: String,
    /// The store that apiservers reach only through this program; the suite connects to the store directly.
    pub relays: Option<String>,
    /// Its flags: name without dashes to value.
    #[serde(default)]
    pub flags: BTreeMap<String, String>,
}

fn one() -> u8 {
    1
}

fn one_store() -> Vec<ProfileStore> {
    vec![ProfileStore {
        name: "main".into(),
        resources: Vec::new(),
        members: 1,
        earlier: 0,
        flags: BTreeMap::new(),
        wrapper: None,
        kind: StoreKind::default(),
    }]
}

fn default_prefix() -> String {
    "/registry".into()
}
