//! What `targets/*.yaml` says, as values: architectures, component sets, control-plane profiles.
//!
//! The field comments are the reference for those files. Parsing and cross-file rules are in the `targets` crate.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::store::StoreKind;

use crate::machine::Machine;
use crate::matrix::Ci;

/// One CPU architecture: `targets/<name>.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The GOARCH; also the file's name and the name used in reports.
    pub name: String,
    /// For people: "RISC-V, 64 bit".
    pub title: String,
    /// Other names accepted on the command line; one of them must be what `uname -m` prints there.
    pub aliases: Vec<String>,
    /// What the header of every binary built for this target must say.
    pub elf: ElfFacts,
    /// Extra environment of `go build`: the variable that names the level of the instruction set.
    #[serde(default)]
    pub go_env: BTreeMap<String, String>,
    /// The user-mode emulator for hosts of another architecture. None: `--provider process` works natively only.
    #[serde(default)]
    pub emulator: Option<Emulator>,
    /// The system VM of this architecture. None: `--provider qemu` cannot run it.
    #[serde(default)]
    pub machine: Option<Machine>,
    /// Extra environment of a component on this architecture, by component name.
    #[serde(default)]
    pub component_env: BTreeMap<String, BTreeMap<String, String>>,
    /// The jobs of this architecture in CI. None: the matrix has none.
    #[serde(default)]
    pub ci: Option<Ci>,
}

/// Expected ELF header fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ElfFacts {
    /// 32 or 64.
    pub class: u8,
    pub byte_order: ByteOrder,
    /// `e_machine`: the number behind an `EM_` constant of the System V gABI.
    pub machine: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ByteOrder {
    Little,
    Big,
}

/// A qemu-user binary and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Emulator {
    /// Names looked for on PATH, in order.
    pub commands: Vec<String>,
    /// The Debian package to install when none is found.
    pub package: String,
    /// Oldest version known to work, "MAJOR.MINOR".
    #[serde(default)]
    pub minimum: Option<String>,
    /// Why `minimum` is what it is: the symptom with an older one.
    #[serde(default)]
    pub reason: Option<String>,
}

/// `targets/components.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Components {
    pub sets: Vec<ComponentSet>,
    /// Lists of components across the sets.
    #[serde(default)]
    pub groups: Vec<ComponentGroup>,
}

/// Components that are asked for together: `--set NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentGroup {
    /// Another one than that of every set.
    pub name: String,
    /// What they are for.
    pub summary: String,
    pub components: Vec<String>,
}

impl Components {
    /// The components of a group, or all of a set, also those that are optional. None: there is neither.
    pub fn named(&self, name: &str) -> Option<Vec<String>> {
        let group = self.groups.iter().find(|group| group.name == name).map(|group| group.components.clone());
        let set = || self.sets.iter().find(|set| set.name == name);
        group.or_else(|| Some(set()?.components.iter().map(|component| component.name.clone()).collect()))
    }
}

/// Components that share one Go module, one version and one `--<name> SPEC` flag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentSet {
    /// `kubernetes` or `etcd`: also the folder below `targets/components/` with go.mod, go.sum, tools.go.
    pub name: String,
    /// The module whose required version is the version of the set.
    pub main_module: String,
    /// The commit that `main_module`'s pinned version was tagged at, where known; a proxy does not tell.
    #[serde(default)]
    pub commit: Option<String>,
    /// Linker flags; `{version}`, `{major}`, `{minor}`, `{commit}`, `{tree_state}`, `{date}` are filled in.
    pub ldflags: Vec<String>,
    #[serde(default)]
    pub tags: Vec<String>,
    /// Folder below `main_module`'s checkout whose modules replace `v0.0.0` requirements: `staging/src/k8s.io`.
    #[serde(default)]
    pub staging: Option<String>,
    /// The minor releases that are pinned: `--<name> MINOR`. Empty: only the folder named after the set.
    #[serde(default)]
    pub releases: Vec<Release>,
    pub components: Vec<Component>,
}

/// A minor release that has a Go module of its own below `targets/components/`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// "1.36".
    pub minor: String,
    /// What the module requires of `main_module`: "v1.36.3".
    pub version: String,
    /// The folder; the one named after the set is taken where no release is asked for.
    pub module: String,
    /// Flags, by today's names, that this release calls `--experimental-NAME`.
    #[serde(default)]
    pub experimental_flags: Vec<String>,
    /// Parts of the flags' comma-separated values that this release does not know and ends at: they are left out.
    #[serde(default)]
    pub unknown_values: Vec<String>,
}

impl ComponentSet {
    /// The pinned release of the same minor as this version: `v1.36.3`, `1.36.3` or `1.36`.
    pub fn release(&self, version: &str) -> Option<&Release> {
        let minor = minor_of(version);
        self.releases.iter().find(|release| release.minor == minor)
    }

    /// The release that is taken where none is asked for.
    pub fn default_release(&self) -> Option<&Release> {
        self.releases.iter().find(|release| release.module == self.name)
    }
}

/// `v1.36.3` to `1.36`.
pub fn minor_of(version: &str) -> String {
    version.trim_start_matches('v').split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Whether this is a minor release, `v1.36`, and not one that was published, `v1.36.3`.
pub fn is_minor(version: &str) -> bool {
    version.trim_start_matches('v').split('.').count() == 2
}

/// One program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// The file name of the binary.
    pub name: String,
    /// The import path given to `go build`.
    pub package: String,
    /// For `checkout:PATH`: the folder below PATH in which `go build` runs.
    #[serde(default)]
    pub checkout_dir: Option<String>,
    /// Built only when asked for by name; a boot does not need it.
    #[serde(default)]
    pub optional: bool,
}

/// A control-plane configuration under which checks run: an entry of `targets/profiles.yaml`.
///
/// In flags and files `{run}` is the profile's private folder and `{store.NAME}` the URL of a store of the profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub name: String,
    /// One sentence: what differs from `default` and which checks need it.
    pub summary: String,
    /// kube-apiserver flags added to, or replacing, the common ones: name without dashes to value.
    #[serde(default)]
    pub apiserver: BTreeMap<String, String>,
    /// Files written below `{run}` before the start, by relative name; `{key32}` is a fresh random 32-byte key, base64.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Programs that run beside the apiserver, started before it.
    #[serde(default)]
    pub plugins: Vec<ProfilePlugin>,
    /// What a kube-controller-manager beside the apiserver runs: the component `PROFILE/kube-controller-manager`, which
    /// does not run before a check starts it. None of these, no such component.
    #[serde(default)]
    pub controllers: Vec<String>,
    /// Whether there is another etcd, in which nothing is: the component `PROFILE/etcd-spare`, which does not run before
    /// a check starts it, and whose history is not recorded.
    #[serde(default)]
    pub spare: bool,
    /// Components that checks run to their end, such as etcdutl.
    #[serde(default)]
    pub tools: Vec<String>,
    /// The first store is the one named by `--etcd-servers`.
    #[serde(default = "one_store")]
    pub stores: Vec<ProfileStore>,
    /// Apiservers on the same stores; the second one is the component `kube-apiserver-2`.
    #[serde(default = "one")]
    pub apiservers: u8,
    /// Storage prefix, `--etcd-prefix`.
    #[serde(default = "default_prefix")]
    pub prefix: String,
}

/// One store of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileStore {
    pub name: String,
    /// `group/resource` (core: `/events`) kept in this store through `--etcd-servers-overrides`; empty: all others.
    #[serde(default)]
    pub resources: Vec<String>,
    /// Members of the cluster; with more than one they are the components `etcd-STORE-1`, `etcd-STORE-2`, ….
    #[serde(default = "one")]
    pub members: u8,
    /// etcd flags added to the common ones: name without dashes to value.
    #[serde(default)]
    pub flags: BTreeMap<String, String>,
    /// A program that is started instead, and becomes the store's.
    #[serde(default)]
    pub wrapper: Option<StoreWrapper>,
    /// Chosen on the command line, for all profiles alike.
    #[serde(skip)]
    pub kind: StoreKind,
}

/// What stands before a store's program on its command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreWrapper {
    /// The component of `components.yaml` that it runs.
    pub component: String,
    /// Between its program and the store's.
    #[serde(default)]
    pub arguments: Vec<String>,
}

/// A program beside an apiserver. It is also told where to answer `/readyz` over HTTPS: `--listen`, `--cert-file` and
/// `--key-file`; only the first where it relays a store, which answers through it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfilePlugin {
    /// What it is called in the profile: the component is `PROFILE/NAME`.
    pub name: String,
    /// The component of `components.yaml` that it runs.
    pub component: String,
    /// The store that apiservers reach through it, and only through it; the suite has a way of its own.
    #[serde(default)]
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
        flags: BTreeMap::new(),
        wrapper: None,
        kind: StoreKind::default(),
    }]
}

fn default_prefix() -> String {
    "/registry".into()
}
