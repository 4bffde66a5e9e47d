//! The names of a profile's processes, including several members of a store and several apiservers.

use model::{Profile, ProfileStore};

/// Name of the component, and of its process within a profile.
pub const CONTROLLER_MANAGER: &str = "kube-controller-manager";
/// The same for the scheduler.
pub const SCHEDULER: &str = "kube-scheduler";
/// The etcd that is not recorded and that no profile lists as a store.
pub(crate) const SPARE: &str = "spare";
/// The same on this machine, if the components have another architecture.
pub(crate) const NATIVE: &str = "native";

/// `PROFILE/etcd-STORE`; with several members `PROFILE/etcd-STORE-1` and so on.
pub(crate) fn stores(profile: &Profile, store: &ProfileStore) -> Vec<String> {
    let name = format!("{}/etcd-{}", profile.name, store.name);
    if store.members < 2 {
        return vec![name];
    }
    (1..=store.members).map(|number| format!("{name}-{number}")).collect()
}

/// `PROFILE/kube-apiserver`, followed by `PROFILE/kube-apiserver-2` and so on.
pub(crate) fn apiservers(profile: &Profile) -> Vec<String> {
    let name = format!("{}/kube-apiserver", profile.name);
    let more = (2..=profile.apiservers).map(|number| format!("{name}-{number}"));
    std::iter::once(name.clone()).chain(more).collect()
}

/// `PROFILE/kube-apiserver-NAME`.
pub(crate) fn variant(profile: &Profile, name: &str) -> String {
    format!("{}/kube-apiserver-{name}", profile.name)
}

/// The name of a variant: the part after `kube-apiserver-` in its component's name.
pub(crate) fn variant_name(component: &str) -> &str {
    component.rsplit_once("/kube-apiserver-").map_or(component, |(_, name)| name)
}

/// The name of a profile's kube-controller-manager, if it has one.
pub(crate) fn controllers(profile: &Profile) -> Option<String> {
    (!profile.controllers.is_empty()).then(|| format!("{}/{CONTROLLER_MANAGER}", profile.name))
}

/// The name of a profile's kube-scheduler, if it has one.
pub(crate) fn scheduler(profile: &Profile) -> Option<String> {
    profile.scheduler.then(|| format!("{}/{SCHEDULER}", profile.name))
}

/// The name of a profile's unrecorded etcd, if it has one.
pub(crate) fn spare(profile: &Profile) -> Option<String> {
    profile.spare.then(|| format!("{}/etcd-{SPARE}", profile.name))
}

/// The name of the etcd that runs on this machine if the components have another architecture.
pub(crate) fn native(profile: &Profile) -> String {
    format!("{}/etcd-{NATIVE}", profile.name)
}

/// The name of a member within its store: the part after `etcd-` in its component's name.
pub(crate) fn short(component: &str) -> &str {
    component.rsplit_once("/etcd-").map_or(component, |(_, name)| name)
}

/// The name of the listener for HTTP of a store's member.
pub(crate) fn http(store: &str) -> String {
    format!("{store}/http")
}

/// The names of all listeners, in the order of the profiles.
pub(crate) fn listeners(profiles: &[Profile]) -> Vec<String> {
    let of = |profile: &Profile| {
        let stores = profile.stores.iter().flat_map(|store| stores(profile, store));
        let of_store = |name: String| [format!("{name}/peer"), http(&name), name];
        let mut names: Vec<String> = stores.flat_map(of_store).collect();
        names.extend(profile.plugins.iter().map(|plugin| format!("{}/{}", profile.name, plugin.name)));
        names.extend(apiservers(profile));
        names.extend(profile.variants.keys().map(|name| variant(profile, name)));
        names.extend(controllers(profile));
        names.extend(scheduler(profile));
        names.extend(spare(profile).into_iter().flat_map(of_store));
        names
    };
    profiles.iter().flat_map(of).collect()
}
