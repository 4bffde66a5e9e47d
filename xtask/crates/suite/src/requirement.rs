//! What checks need from a control plane; [`missing`](crate::check::missing) decides whether it has that.
//!
//! A check body skips only for what it learns by asking the server, such as a feature gate.

use model::Capabilities;

/// The profile whose flags are the defaults: the only one that an external cluster can stand for.
pub const DEFAULT_PROFILE: &str = "default";

/// Where a check may run, and what it needs there beyond an apiserver and its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requires {
    /// A cluster that the run has booted.
    OwnCluster(&'static [Requirement]),
    /// Any cluster. The check writes only to its own namespace and its own custom resources, creates nothing that a
    /// controller acts on (a Pod would be started), assumes nothing of flags, and causes no load that other clients of an
    /// external cluster would notice.
    AnyCluster(&'static [Requirement]),
}

/// One thing that a check needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Starting, stopping and restarting components.
    Control,
    /// No other case on the profile at the same time: the check restarts or compacts what others use.
    Exclusive,
    /// Both, on this profile only: on the others the check leaves that part out.
    ExclusiveOn(&'static str),
    /// `Control` on this profile only: on the others the check leaves that part out.
    ControlOn(&'static str),
    /// To come before all other cases of its profile, because others wait long and exclusive ones would wait for them.
    First,
    /// If this exclusive check of the profile is selected, too, it comes first.
    After(&'static str),
    /// Reading the raw store.
    RawStore,
    /// A namespace into which no other client writes. A controller manager creates objects in each new one.
    QuietNamespace,
    /// Both HTTP versions, because the check compares them.
    Http2,
    /// A node on which Pods run.
    Node,
    /// An etcd of this machine's own architecture next to components of another one.
    NativeStore,
    /// Components on the machine's own processors: emulators order memory accesses more strictly than processors do.
    Native,
    /// Components that are processes of this machine, so that they can connect to others on it.
    Processes,
    /// etcd itself: kine logs no requests and cannot be watched as a whole.
    Etcd,
    /// A little-endian processor: the files of etcd's database have the byte order of the machine.
    LittleEndian,
    /// An apiserver of the minor before the one under test, on the same stores.
    PreviousApiserver,
    /// A first store whose members can run releases before the one under test.
    EarlierStores,
    /// This many apiservers on one store.
    Apiservers(usize),
    /// This many members of the first store.
    Members(usize),
    /// So many minutes on the reference machine, because the server acts only then; see `Check::time_limit`.
    Minutes(u32),
}

impl Requires {
    pub fn list(self) -> &'static [Requirement] {
        match self {
            Requires::OwnCluster(list) | Requires::AnyCluster(list) => list,
        }
    }
}

impl Requirement {
    /// The words of reports, `list` and `explain`.
    pub fn text(self) -> String {
        match self {
            Requirement::Control => "control over the components (start, stop, flags)".into(),
            Requirement::Exclusive => "the profile without other cases".into(),
            Requirement::ExclusiveOn(profile) => {
                format!("on `{profile}`: {}, {}", Requirement::Control.text(), Requirement::Exclusive.text())
            }
            Requirement::ControlOn(profile) => format!("on `{profile}`: {}", Requirement::Control.text()),
            Requirement::First => "to come before the other cases of its profile".into(),
            Requirement::After(check) => format!("to come after {check}, if that is selected"),
            Requirement::RawStore => "the raw store (--store-endpoint)".into(),
            Requirement::QuietNamespace => "a namespace into which no controller writes".into(),
            Requirement::Http2 => {
                "an endpoint that speaks HTTP/2 (this one, or a proxy before it, speaks HTTP/1.1 only)".into()
            }
            Requirement::Node => "a node with kubelet and containers (--cluster node)".into(),
            Requirement::NativeStore => {
                "an etcd of this machine's own architecture, next to components of another one".into()
            }
            Requirement::Native => {
                "native execution: an emulator orders memory accesses more strictly than the processor".into()
            }
            Requirement::Processes => "components that are processes of this machine".into(),
            Requirement::Etcd => "etcd as the store".into(),
            Requirement::LittleEndian => "a little-endian processor".into(),
            Requirement::PreviousApiserver => {
                "a build of kube-apiserver of the minor before, pinned in targets/components.yaml (--components has none)".into()
            }
            Requirement::EarlierStores => {
                "a build of etcd of the minor before, pinned in targets/components.yaml (--components has none)".into()
            }
            Requirement::Apiservers(count) => format!("{count} apiservers on one store"),
            Requirement::Members(count) => format!("a store of {count} members"),
            Requirement::Minutes(minutes) => format!("{minutes} minutes"),
        }
    }

    pub(crate) fn is_met(self, on: &str, by: &Capabilities) -> bool {
        match self {
            Requirement::Control => by.control,
            Requirement::ExclusiveOn(profile) | Requirement::ControlOn(profile) => profile != on || by.control,
            // An external cluster is never exclusive, see `check::missing`.
            Requirement::Exclusive | Requirement::First | Requirement::After(_) | Requirement::Minutes(_) => true,
            Requirement::RawStore => by.raw_store,
            Requirement::QuietNamespace => by.quiet_namespaces,
            Requirement::Http2 => by.http2,
            Requirement::Node => by.node,
            Requirement::NativeStore => by.native_store,
            Requirement::Native => by.native,
            Requirement::Processes => by.processes,
            Requirement::Etcd => by.etcd,
            Requirement::LittleEndian => by.little_endian,
            Requirement::PreviousApiserver => by.previous_apiserver,
            Requirement::EarlierStores => by.earlier_stores,
            Requirement::Apiservers(count) => by.apiservers >= count,
            Requirement::Members(count) => by.members >= count,
        }
    }
}
