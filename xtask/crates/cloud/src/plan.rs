//! The requests of a dry run. They are made by the same code as real requests, with `.invalid` hosts for addresses that
//! only the cloud's catalogue contains.

use std::collections::BTreeMap;

use reqwest::Url;

use crate::compute::{self, NewServer};
use crate::config::Access;
use crate::fault::Fault;
use crate::http::{self, Call, Planned};
use crate::lookup;
use crate::microversion::Microversion;
use crate::session;

/// The requests that create a server, in order. `wanted` has names instead of ids. Without `access` the address of the
/// log-in is also unknown.
pub fn creation(access: Option<&Access>, wanted: &NewServer, newest: Microversion) -> Result<Vec<Planned>, Fault> {
    let nova = host("https://nova.invalid/v2.1")?;
    let neutron = host("https://neutron.invalid")?;
    let mut calls = vec![
        Call::get("Nova: which versions", http::below(&nova, "")),
        lookup::images_call(&host("https://glance.invalid")?, &wanted.image),
        Call::get(format!("Nova: the flavor `{}`", wanted.flavor), compute::flavors_url(&nova)),
    ];
    if let Some(network) = &wanted.network {
        calls.push(lookup::neutron_call(&neutron, "networks", "network", network));
    }
    for group in &wanted.security_groups {
        calls.push(lookup::neutron_call(&neutron, "security-groups", "security group", group));
    }
    let id = |name: &String| format!("<id of {name}>");
    let server = NewServer {
        image: id(&wanted.image),
        flavor: id(&wanted.flavor),
        network: wanted.network.as_ref().map(id),
        ..wanted.clone()
    };
    calls.push(compute::create_call(&nova, Some(newest), &server)?);
    // With OS_AUTH_URL and the credential of the environment or clouds.yaml.
    let unknown_login = || Planned {
        method: "POST".into(),
        url: "https://keystone.invalid/v3/auth/tokens".into(),
        headers: BTreeMap::new(),
        body: None,
        sent: false,
    };
    let login = access.map(session::login_call).transpose()?;
    let login = login.map_or_else(unknown_login, |call| call.planned(false));
    Ok([login].into_iter().chain(calls.iter().map(|call| call.planned(true))).collect())
}

fn host(text: &str) -> Result<Url, Fault> {
    http::address(text, "a dry run")
}
