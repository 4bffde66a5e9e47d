//! The part of a memory snapshot's key that comes from the processes in it.
//!
//! Module `qemu` combines it with the rest of the key.

use std::path::{Path, PathBuf};

use model::{Artifact, Profile};

use super::ROOT;
use crate::component_names;
use crate::flags::{self, Member, StorePorts};
use crate::pki;
use crate::place::{Root, SLOW};

/// A program, its command, and the properties of its release that change its flags.
pub(super) fn program(artifact: &Artifact, command: &(PathBuf, Vec<String>)) -> String {
    let Artifact { component, sha256, experimental_flags, unknown_values, .. } = artifact;
    format!("{component} {sha256} {command:?} {experimental_flags:?} {unknown_values:?}")
}

/// The command lines of a profile without the values that are new in every run. A snapshot contains processes with
/// exactly these command lines.
pub(super) fn of(profile: &Profile) -> anyhow::Result<String> {
    let root = Root { host_path: PathBuf::from("/"), guest_path: PathBuf::from(ROOT) };
    let pki = pki::below(Path::new("/pki")).seen_from(&root);
    let servers = profile.stores.iter().map(|store| (store.name.clone(), flags::url(1))).collect();
    let of_apiserver = |factor| flags::apiserver(profile, Path::new(ROOT), (1, "0.0.0.0"), factor, &servers, &pki);
    let mut all = vec![of_apiserver(1.0)?, of_apiserver(SLOW * 2.0)?];
    let programs = profile.stores.iter().map(|store| store.kind.component()).chain(["kube-apiserver"]);
    all.extend(programs.map(|program| flags::environment(program, SLOW)));
    let ports = StorePorts { client: 1, peer: 2, http: 3 };
    for store in &profile.stores {
        let names = component_names::stores(profile, store);
        let peers: Vec<_> = names.iter().map(|name| (component_names::short(name).to_owned(), ports.clone())).collect();
        let of_member = |(name, _): &(String, StorePorts)| {
            [1.0, SLOW].map(|factor| {
                let member = Member::new(name, &peers, factor);
                flags::store(store, &member, Path::new(ROOT), &ports, "0.0.0.0", &pki)
            })
        };
        all.extend(peers.iter().flat_map(of_member));
    }
    for plugin in &profile.plugins {
        all.push(flags::plugin(plugin, Path::new(ROOT), 1, "0.0.0.0", &servers, &pki)?);
    }
    let wrappers: Vec<_> = profile.stores.iter().map(|store| &store.wrapper).collect();
    Ok(serde_json::to_string(&(all, profile.apiservers, &profile.plugins, wrappers))?)
}
