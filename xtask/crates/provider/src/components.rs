//! Which components a set of profiles needs.

use std::collections::BTreeSet;

use model::{Components, EARLIER_MINORS, Profile, ProfileStore, StoreKind, component_of, earlier_name};

/// The component of which a profile's variants are.
pub(crate) const APISERVER: &str = "kube-apiserver";

/// The components under test, and those that the profiles need; with `init`, also the first process of a machine.
pub(crate) fn of_profiles(components: &Components, profiles: &[Profile], init: bool) -> Vec<String> {
    let all = components.sets.iter().flat_map(|set| &set.components);
    let stores = |name: &str| profiles.iter().flat_map(|p| &p.stores).any(|store| store.kind.component() == name);
    let tools = |name: &str| profiles.iter().flat_map(|p| &p.tools).any(|tool| tool == name);
    let controls = |name: &str| name == boot::CONTROLLER_MANAGER && profiles.iter().any(|p| !p.controllers.is_empty());
    let schedules = |name: &str| name == boot::SCHEDULER && profiles.iter().any(|p| p.scheduler);
    let needed = all.clone().filter(|c| match c.name.as_str() {
        name if StoreKind::has_program(name) => stores(name),
        name => {
            !c.optional
                || init && name == boot::INIT
                || helps(name, profiles)
                || tools(name)
                || controls(name)
                || schedules(name)
        }
    });
    let needed = needed.map(|component| component.name.clone());
    let earlier = |minors| all.clone().map(move |component| earlier_name(&component.name, minors));
    needed.chain((1..=EARLIER_MINORS).flat_map(earlier).filter(|name| runs_earlier(name, profiles))).collect()
}

/// Whether a program of an earlier minor is that of an apiserver's variant, or one of those that a store can run.
fn runs_earlier(program: &str, profiles: &[Profile]) -> bool {
    let (component, minors) = component_of(program);
    let store = |store: &ProfileStore| store.kind.component() == component && store.earlier >= minors;
    profiles.iter().any(|profile| {
        let is_variant = profile.previous.is_some() && (component, minors) == (APISERVER, 1);
        is_variant || profile.stores.iter().any(store)
    })
}

/// Whether a component is a plug-in of an apiserver, or runs between an apiserver and its store.
pub(crate) fn helps(component: &str, profiles: &[Profile]) -> bool {
    let plugins = profiles.iter().flat_map(|profile| &profile.plugins).map(|plugin| &plugin.component);
    let wrappers = profiles.iter().flat_map(|profile| &profile.stores).filter_map(|store| store.wrapper.as_ref());
    plugins.chain(wrappers.map(|wrapper| &wrapper.component)).any(|name| name == component)
}

/// The components of spare etcds and their tools; they are also built for this machine if the target differs from it.
pub fn of_spares(profiles: &[Profile]) -> Vec<String> {
    let with_a_spare = || profiles.iter().filter(|profile| profile.spare);
    let etcd = with_a_spare().map(|_| StoreKind::Etcd.component().to_owned());
    let names: BTreeSet<String> = with_a_spare().flat_map(|profile| profile.tools.clone()).chain(etcd).collect();
    names.into_iter().collect()
}
