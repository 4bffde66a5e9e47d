//! The names of a profile's processes, where a store has several members or a control plane several apiservers.

use model::{Profile, ProfileStore};

/// `PROFILE/etcd-STORE`, or `PROFILE/etcd-STORE-1` and so on where the store has several members.
pub(crate) fn stores(profile: &Profile, store: &ProfileStore) -> Vec<String> {
    let name = format!("{}/etcd-{}", profile.name, store.name);
    if store.members < 2 {
        return vec![name];
    }
    (1..=store.members).map(|number| format!("{name}-{number}")).collect()
}

/// `PROFILE/kube-apiserver`, and `PROFILE/kube-apiserver-2` and so on behind it.
pub(crate) fn apiservers(profile: &Profile) -> Vec<String> {
    let name = format!("{}/kube-apiserver", profile.name);
    let more = (2..=profile.apiservers).map(|number| format!("{name}-{number}"));
    std::iter::once(name.clone()).chain(more).collect()
}

/// The name by which a member is known to the others: what is behind `etcd-` in that of its component.
pub(crate) fn short(component: &str) -> &str {
    component.rsplit_once("/etcd-").map_or(component, |(_, name)| name)
}

/// The names of everything that listens, in the order of the profiles.
pub(crate) fn listeners(profiles: &[Profile]) -> Vec<String> {
    let of = |profile: &Profile| {
        let stores = profile.stores.iter().flat_map(|store| stores(profile, store));
        let mut names: Vec<String> = stores.flat_map(|name| [name.clone(), format!("{name}/peer")]).collect();
        names.extend(profile.plugins.iter().map(|plugin| format!("{}/{}", profile.name, plugin.name)));
        names.extend(apiservers(profile));
        names
    };
    profiles.iter().flat_map(of).collect()
}
