//! What a control plane and its provider can do for checks. Which check needs what is in the suite.

use crate::{ByteOrder, Cluster, External, ProfileInfo};

/// The beginning of [`ClusterInfo::execution`](crate::ClusterInfo::execution) without an emulator.
const NATIVE: &str = "native";

/// What the checks on one profile can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Why the provider cannot make this control plane.
    pub no_control_plane: Option<String>,
    /// Other clients use the cluster, and its flags are not the profile's.
    pub external: bool,
    /// Components can be started, stopped and restarted with other flags.
    pub control: bool,
    /// The suite can read the raw stores.
    pub raw_store: bool,
    /// No controller creates objects in new namespaces.
    pub quiet_namespaces: bool,
    /// The endpoint speaks HTTP/2 in addition to HTTP/1.1.
    pub http2: bool,
    /// Pods run on a node.
    pub node: bool,
    /// An etcd of this machine's own architecture is available next to components of another one.
    pub native_store: bool,
    /// Components are processes of this machine, so they can connect to others on it.
    pub processes: bool,
    /// The components run on the machine's own processors, without an emulator or a VM.
    pub native: bool,
    /// The store is etcd, not a replacement.
    pub etcd: bool,
    /// The components run on a little-endian processor.
    pub little_endian: bool,
    /// An apiserver of the minor before the one under test can run on the same stores.
    pub previous_apiserver: bool,
    /// The members of the first store can run releases before the one under test.
    pub earlier_stores: bool,
    pub apiservers: usize,
    /// Members of the first store.
    pub members: usize,
}

impl Capabilities {
    /// Everything that a provider of this project can offer, on enough servers for every check.
    pub const ALL: Capabilities = Capabilities {
        no_control_plane: None,
        external: false,
        control: true,
        raw_store: true,
        quiet_namespaces: true,
        http2: true,
        node: true,
        native_store: true,
        processes: true,
        native: true,
        etcd: true,
        little_endian: true,
        previous_apiserver: true,
        earlier_stores: true,
        apiservers: usize::MAX,
        members: usize::MAX,
    };

    /// What an external cluster can offer at most; `raw_store` tells whether its store can be read.
    pub const fn external(raw_store: bool) -> Capabilities {
        Capabilities {
            external: true,
            control: false,
            raw_store,
            node: false,
            native_store: false,
            native: false,
            ..Capabilities::ALL
        }
    }
}

impl Cluster {
    /// The capabilities of a running control plane.
    pub fn capabilities(&self, profile: &ProfileInfo) -> Capabilities {
        let external = self.info.external.as_ref();
        let lacks = |what: fn(&External) -> bool| external.is_some_and(what);
        Capabilities {
            no_control_plane: None,
            external: external.is_some(),
            control: self.control.is_some(),
            raw_store: profile.shows_its_stores(),
            quiet_namespaces: !lacks(|external| external.fills_namespaces),
            http2: !lacks(|external| external.http1_only),
            node: self.info.node.as_ref().is_some_and(|node| node.profile == profile.name),
            native_store: self.control.as_ref().is_some_and(|control| control.native(&profile.name).is_some()),
            processes: self.info.machine.is_none(),
            native: self.info.execution.starts_with(NATIVE),
            etcd: profile.stores.iter().all(|store| store.kind.counts_versions()),
            little_endian: self.info.byte_order == Some(ByteOrder::Little),
            previous_apiserver: profile.variants.values().any(|variant| variant.previous),
            earlier_stores: profile.stores.first().is_some_and(|store| !store.programs.is_empty()),
            apiservers: profile.apiservers.len().max(1),
            members: profile.stores.first().map_or(1, |store| store.members.len().max(1)),
        }
    }
}
