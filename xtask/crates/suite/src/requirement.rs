//! What checks need from a control plane, and the only function that decides whether it has that.
//!
//! A check body skips only for what it learns by asking the server, such as a feature gate.

use model::Capabilities;

use crate::check::Check;

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
    /// Components that are processes of this machine, so that they can connect to others on it.
    Processes,
    /// etcd itself: kine logs no requests and cannot be watched as a whole.
    Etcd,
    /// This many apiservers on one store.
    Apiservers(usize),
    /// This many members of the first store.
    Members(usize),
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
            Requirement::RawStore => "the raw store (--store-endpoint)".into(),
            Requirement::QuietNamespace => "a namespace into which no controller writes".into(),
            Requirement::Http2 => {
                "an endpoint that speaks HTTP/2 (this one, or a proxy before it, speaks HTTP/1.1 only)".into()
            }
            Requirement::Node => "a node with kubelet and containers (--cluster node)".into(),
            Requirement::NativeStore => {
                "an etcd of this machine's own architecture, next to components of another one".into()
            }
            Requirement::Processes => "components that run through an emulator on this machine".into(),
            Requirement::Etcd => "etcd as the store".into(),
            Requirement::Apiservers(count) => format!("{count} apiservers on one store"),
            Requirement::Members(count) => format!("a store of {count} members"),
        }
    }

    fn is_met(self, on: &str, by: &Capabilities) -> bool {
        match self {
            Requirement::Control => by.control,
            Requirement::ExclusiveOn(profile) => profile != on || by.control,
            // An external cluster is never exclusive, see `missing`.
            Requirement::Exclusive => true,
            Requirement::RawStore => by.raw_store,
            Requirement::QuietNamespace => by.quiet_namespaces,
            Requirement::Http2 => by.http2,
            Requirement::Node => by.node,
            Requirement::NativeStore => by.native_store,
            Requirement::Processes => by.processes,
            Requirement::Etcd => by.etcd,
            Requirement::Apiservers(count) => by.apiservers >= count,
            Requirement::Members(count) => by.members >= count,
        }
    }
}

/// What the check lacks on a profile with these capabilities; None if it can run.
pub fn missing(check: &Check, profile: &str, capabilities: &Capabilities) -> Option<String> {
    const OWN_CLUSTER: &str = "a cluster of its own";
    if capabilities.no_control_plane.is_some() {
        return capabilities.no_control_plane.clone();
    }
    if capabilities.external && profile != DEFAULT_PROFILE {
        return Some("a control plane with flags of its own".into());
    }
    let unmet = check.requires.list().iter().find(|requirement| !requirement.is_met(profile, capabilities));
    match check.requires {
        Requires::OwnCluster(_) if capabilities.external => match unmet {
            Some(Requirement::Control) => Some(Requirement::Control.text()),
            _ => Some(OWN_CLUSTER.into()),
        },
        _ => unmet.map(|requirement| requirement.text()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_checks::CHECKS;

    fn lacks(id: &str, profile: &str, capabilities: &Capabilities) -> Option<String> {
        missing(CHECKS.iter().find(|check| check.id == id).unwrap(), profile, capabilities)
    }

    #[test]
    fn clusters_of_the_run_skip_only_for_unmet_requirements() {
        let all = Capabilities::ALL;
        assert!(
            CHECKS.iter().all(|check| check.profiles.iter().all(|profile| missing(check, profile, &all).is_none()))
        );
        let single = Capabilities { members: 1, control: false, ..Capabilities::ALL };
        assert_eq!(lacks("fault.members", "ha", &single).as_deref(), Some("a store of 3 members"));
        assert_eq!(lacks("fault.restart", "disruptive", &single), Some(Requirement::Control.text()));
        assert_eq!(lacks("watch.start", "default", &single), None);
        let unmade = Capabilities { no_control_plane: Some("another store".into()), ..Capabilities::ALL };
        assert_eq!(lacks("watch.start", "default", &unmade).as_deref(), Some("another store"));
    }

    #[test]
    fn external_clusters_run_only_checks_that_name_them() {
        let best = Capabilities::external(true);
        assert_eq!(lacks("storage.anywhere", "default", &best), None);
        assert_eq!(lacks("suite.sound", "default", &best), None);
        assert_eq!(lacks("cc.update", "default", &best).as_deref(), Some("a cluster of its own"));
        assert_eq!(lacks("watch.ordered", "no-cache", &best).as_deref(), Some("a control plane with flags of its own"));
        let worst = Capabilities { quiet_namespaces: false, ..Capabilities::external(false) };
        assert_eq!(lacks("list.pages", "default", &worst), Some(Requirement::QuietNamespace.text()));
        assert_eq!(lacks("suite.sound", "default", &worst), Some(Requirement::RawStore.text()));
    }
}
