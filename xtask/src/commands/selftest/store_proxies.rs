//! Proxies between the suite and the stores that it asks itself: each member of the first store, and the spare etcd.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::{Action, Cluster, Control, ControlError, ProfileInfo, StoreInfo};
use mutate::{StoreChange, StoreProxy};

/// Replaces the addresses of these stores, in all profiles, by those of proxies.
pub(super) fn insert(cluster: &mut Cluster, make: fn() -> StoreChange) -> anyhow::Result<Vec<StoreProxy>> {
    let (mut proxies, mut spares) = (Vec::new(), BTreeMap::new());
    for (name, profile) in &mut cluster.info.profiles {
        proxies.extend(before_members(&mut profile.stores[0], make)?);
        if let Some(mut spare) = cluster.control.as_ref().and_then(|control| control.spare(name)) {
            proxies.extend(before_members(&mut spare, make)?);
            spares.insert(name.clone(), spare);
        }
    }
    let proxied = |real| Arc::new(ProxiedSpares { real, spares }) as Arc<dyn Control>;
    cluster.control = cluster.control.take().map(proxied);
    Ok(proxies)
}

/// Replaces each member's address by that of a proxy in front of it.
fn before_members(store: &mut StoreInfo, make: fn() -> StoreChange) -> anyhow::Result<Vec<StoreProxy>> {
    let mut proxies = Vec::new();
    let real = store.clone();
    for address in std::iter::once(&mut store.endpoint).chain(&mut store.members) {
        let member = StoreInfo { endpoint: address.clone(), ..real.clone() };
        let proxy = StoreProxy::start(&member, make())?;
        *address = format!("https://127.0.0.1:{}", proxy.port());
        proxies.push(proxy);
    }
    Ok(proxies)
}

/// The control of the cluster, with the addresses of proxies for the spare etcds.
struct ProxiedSpares {
    real: Arc<dyn Control>,
    /// By profile.
    spares: BTreeMap<String, StoreInfo>,
}

impl Control for ProxiedSpares {
    fn spare(&self, profile: &str) -> Option<StoreInfo> {
        self.spares.get(profile).cloned()
    }

    fn components(&self) -> Vec<String> {
        self.real.components()
    }

    fn started(&self, profile: &str) -> Result<Option<ProfileInfo>, ControlError> {
        self.real.started(profile)
    }

    fn apply(&self, component: &str, action: &Action) -> Result<(), ControlError> {
        self.real.apply(component, action)
    }

    fn write(&self, profile: &str, file: &str, content: &[u8]) -> Result<(), ControlError> {
        self.real.write(profile, file, content)
    }

    fn run(&self, profile: &str, tool: &str, args: &[String], limit: Duration) -> Result<String, ControlError> {
        self.real.run(profile, tool, args, limit)
    }

    fn native(&self, profile: &str) -> Option<StoreInfo> {
        self.real.native(profile)
    }

    fn log(&self, component: &str) -> Result<String, ControlError> {
        self.real.log(component)
    }

    fn resume(&self, profile: &str) -> Result<(), ControlError> {
        self.real.resume(profile)
    }

    fn suspend(&self, profile: &str) -> Result<(), ControlError> {
        self.real.suspend(profile)
    }

    fn first_failure(&self) -> Option<String> {
        self.real.first_failure()
    }
}
