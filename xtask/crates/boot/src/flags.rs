//! The command lines of etcd and kube-apiserver. Everything that differs between profiles is in the profile.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use model::{Artifact, Profile, ProfilePlugin, ProfileStore, StoreKind};

use crate::pki::{Pki, random_base64};
use crate::place::SLOW;

pub(crate) type Flags = BTreeMap<String, String>;

/// kube-apiserver's default of `--etcd-prefix` (kubernetes pkg/kubeapiserver/options/options.go).
pub(crate) const DEFAULT_PREFIX: &str = "/registry";

/// kube-apiserver's default of `--request-timeout`, in seconds (apiserver pkg/server/config.go).
const REQUEST_TIMEOUT: f64 = 60.0;

/// Ports of a store member.
#[derive(Clone, Debug)]
pub(crate) struct StorePorts {
    pub(crate) client: u16,
    pub(crate) peer: u16,
    /// Where etcd answers everything that is not gRPC.
    pub(crate) http: u16,
}

/// A member of a store.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// `--initial-cluster`: the names and peer addresses of all members.
    pub(crate) cluster: String,
    /// How much slower its machine is than the reference machine.
    pub(crate) factor: f64,
}

impl Member {
    /// A member of a store whose members have these names and ports.
    pub(crate) fn new(name: &str, all: &[(String, StorePorts)], factor: f64) -> Member {
        let peers = all.iter().map(|(name, ports)| format!("{name}={}", url(ports.peer)));
        Member { name: name.to_owned(), cluster: peers.collect::<Vec<_>>().join(","), factor }
    }

    /// Heartbeat interval and election timeout: etcd's defaults multiplied by the factor. etcd refuses more than 50 s.
    fn times(&self) -> [(&'static str, String); 2] {
        let heartbeat = (100.0 * self.factor).clamp(100.0, 5000.0);
        [("heartbeat-interval", format!("{heartbeat:.0}")), ("election-timeout", format!("{:.0}", heartbeat * 10.0))]
    }

    /// How often watches without events receive the revision; bookmarks of idle resources advance with it.
    ///
    /// kubeadm sets 5 s. An apiserver has some eighty watches, and progress notifications to all of them at this
    /// interval are 40 % of the work of an idle control plane; on a slow machine that is a tenth of all work. Profiles
    /// whose checks wait for such a bookmark set the flag themselves.
    fn progress_interval(&self) -> &'static str {
        if self.factor < SLOW { "5s" } else { "60s" }
    }
}

pub(crate) fn url(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

pub(crate) fn store(
    store: &ProfileStore,
    member: &Member,
    data: &Path,
    ports: &StorePorts,
    listen: &str,
    pki: &Pki,
) -> Flags {
    match store.kind {
        StoreKind::Etcd => etcd(store, member, data, ports, listen, pki),
        StoreKind::KineSqlite => kine(&format!("sqlite://{}/state.db?{SQLITE}", data.display()), ports, listen, pki),
        StoreKind::KineNats => kine(&format!("nats://?dontListen&dataDir={}", data.display()), ports, listen, pki),
    }
}

/// kine's own defaults, which it does not apply if its endpoint contains the file's path
/// (pkg/drivers/sqlite/sqlite.go).
const SQLITE: &str =
    "_journal_mode=WAL&_busy_timeout=30000&_synchronous=NORMAL&_txlock=immediate&_stmt_cache_size=20&cache=shared";

/// A store's own flags are for etcd, so kine does not get them. kine sends progress notifications every 5 s by itself.
fn kine(endpoint: &str, ports: &StorePorts, listen: &str, pki: &Pki) -> Flags {
    pairs([
        ("listen-address", format!("{listen}:{}", ports.client)),
        ("endpoint", endpoint.to_owned()),
        ("server-cert-file", pki.server.cert.display().to_string()),
        ("server-key-file", pki.server.key.display().to_string()),
        ("trusted-ca-file", pki.ca.display().to_string()),
        ("metrics-bind-address", "0".into()),
        // Otherwise the last thousand revisions outlive any compaction, and no check could observe one.
        ("compact-min-retain", "0".into()),
    ])
}

/// One member of a store. It has a port of its own for HTTP: on a shared one, Go's HTTP server carries gRPC, which takes
/// a fifth of all of etcd's work (and delays watches: <https://github.com/etcd-io/etcd/issues/15402>).
///
/// A single member keeps etcd's default heartbeat and election times, also on slow machines: no other member could
/// depose it for being silent. Longer times would cost up to two election timeouts at every start (18 s at a factor of
/// 18), and raise the shortest lease that etcd grants above the event TTLs under test (server/lease/lessor.go,
/// minLeaseTTL).
fn etcd(store: &ProfileStore, member: &Member, data: &Path, ports: &StorePorts, listen: &str, pki: &Pki) -> Flags {
    let client = url(ports.client);
    let peer = url(ports.peer);
    let mut flags = pairs([
        ("name", member.name.clone()),
        ("data-dir", data.display().to_string()),
        ("listen-client-urls", format!("https://{listen}:{}", ports.client)),
        ("listen-client-http-urls", format!("https://{listen}:{}", ports.http)),
        ("advertise-client-urls", client),
        ("listen-peer-urls", peer.clone()),
        ("initial-advertise-peer-urls", peer),
        ("initial-cluster", member.cluster.clone()),
        ("cert-file", pki.server.cert.display().to_string()),
        ("key-file", pki.server.key.display().to_string()),
        ("client-cert-auth", "true".into()),
        ("trusted-ca-file", pki.ca.display().to_string()),
        ("peer-cert-file", pki.server.cert.display().to_string()),
        ("peer-key-file", pki.server.key.display().to_string()),
        ("peer-client-cert-auth", "true".into()),
        ("peer-trusted-ca-file", pki.ca.display().to_string()),
        ("watch-progress-notify-interval", member.progress_interval().into()),
    ]);
    if store.members > 1 {
        flags.extend(pairs(member.times()));
    }
    flags.extend(store.flags.clone());
    flags
}

/// Adapts the flags to a release that calls some of them `--experimental-NAME` and does not know some values. A flag
/// that the profile calls `experimental-NAME` is for such a release only: later ones have a feature gate in its place.
pub(crate) fn as_known(flags: Flags, release: &Artifact) -> Flags {
    let Artifact { experimental_flags: experimental, unknown_values: unknown, .. } = release;
    let is_experimental = |name: &str| experimental.iter().any(|flag| flag == name);
    let known = |name: String| match name.strip_prefix("experimental-") {
        Some(rest) => is_experimental(rest).then_some(name),
        None if is_experimental(&name) => Some(format!("experimental-{name}")),
        None => Some(name),
    };
    let rest = |value: String| {
        let parts: Vec<&str> = value.split(',').filter(|part| !unknown.iter().any(|word| word == part)).collect();
        if parts.is_empty() { None } else { Some(parts.join(",")) }
    };
    flags.into_iter().filter_map(|(name, value)| Some((known(name)?, rest(value)?))).collect()
}

/// `servers` are the URLs of the profile's stores by name; the URLs of several members are separated by commas.
pub(crate) fn apiserver(
    profile: &Profile,
    run: &Path,
    (port, listen): (u16, &str),
    factor: f64,
    servers: &BTreeMap<String, String>,
    pki: &Pki,
) -> anyhow::Result<Flags> {
    let main = &profile.stores.first().context("a profile has at least one store")?.name;
    let mut flags = pairs([
        ("etcd-servers", servers[main].clone()),
        ("etcd-cafile", pki.ca.display().to_string()),
        ("etcd-certfile", pki.admin.cert.display().to_string()),
        ("etcd-keyfile", pki.admin.key.display().to_string()),
        ("bind-address", listen.into()),
        // Only a name in the store; kube-apiserver 1.37 refuses an address of the loopback interface. 192.0.2.0/24 is for
        // documentation (RFC 5737).
        ("advertise-address", "192.0.2.1".into()),
        ("secure-port", port.to_string()),
        ("tls-cert-file", pki.server.cert.display().to_string()),
        ("tls-private-key-file", pki.server.key.display().to_string()),
        ("client-ca-file", pki.ca.display().to_string()),
        ("token-auth-file", pki.tokens.display().to_string()),
        // With RBAC, the apiserver would first write its roles: half of its work on an empty store. What is stored and
        // watched does not depend on RBAC; `default` and `node` authorize like real clusters.
        ("authorization-mode", "AlwaysAllow".into()),
        ("service-account-issuer", "https://kubernetes.default.svc".into()),
        ("service-account-signing-key-file", pki.service_account_key.display().to_string()),
        ("service-account-key-file", pki.service_account_pub.display().to_string()),
        ("service-cluster-ip-range", "10.96.0.0/16".into()),
        // Without a controller manager no default ServiceAccount exists, and the plugin would refuse every Pod.
        ("disable-admission-plugins", "ServiceAccount".into()),
        ("v", "2".into()),
    ]);
    // The apiserver cuts off an answer that takes it longer than this. This was seen for a page with 500 objects on an
    // emulated machine under load: "stream error received: unexpected internal error encountered".
    if factor >= SLOW {
        flags.insert("request-timeout".into(), format!("{:.0}s", REQUEST_TIMEOUT * factor / SLOW));
    }
    // Not set if it is the default, so that the suite sees the server's own default.
    if profile.prefix != DEFAULT_PREFIX {
        flags.insert("etcd-prefix".into(), profile.prefix.clone());
    }
    let overrides: Vec<String> = profile
        .stores
        .iter()
        .flat_map(|store| {
            store.resources.iter().map(|resource| format!("{resource}#{}", servers[&store.name].replace(',', ";")))
        })
        .collect();
    if !overrides.is_empty() {
        flags.insert("etcd-servers-overrides".into(), overrides.join(","));
    }
    for (name, value) in &profile.apiserver {
        flags.insert(name.clone(), fill(value, run, servers)?);
    }
    Ok(flags)
}

/// Go runtime settings for an apiserver and a store on a slow machine. They do not change what these programs do.
///
/// Collecting garbage whenever the heap has doubled takes a fifth of an apiserver's work at its start; whenever it has
/// tripled, half of that, for 45 MiB more. Fivefold would save the rest as well, but a guest with twelve apiservers ran
/// out of memory with it. The limit is far above the memory of the busiest of them (120 MiB natively, plus 60 MiB of
/// stacks and the rest), because near the limit Go does nothing but collect. This happened to a store with a limit of
/// 96 MiB, whose heap had reached 67 MiB after an hour of mutants: it took 1,300 s of CPU time for 3,600 collections,
/// and writes failed with "etcdserver: request timed out". Because only a few profiles run at a time, the target files'
/// memory has room for this limit. ML-KEM in addition to X25519 is a third of a connection's key exchange, and an
/// apiserver starts with 130 connections to its store.
/// <https://pkg.go.dev/runtime#hdr-Environment_Variables>
pub(crate) fn environment(component: &str, factor: f64) -> BTreeMap<String, String> {
    let limit = match component {
        _ if factor < SLOW => return BTreeMap::new(),
        "kube-apiserver" => "400MiB",
        name if StoreKind::has_program(name) => "256MiB",
        _ => return BTreeMap::new(),
    };
    pairs([("GODEBUG", "tlsmlkem=0".into()), ("GOGC", "200".into()), ("GOMEMLIMIT", limit.into())])
}

/// Flags of a controller manager or scheduler. Leader election is disabled: each control plane has at most one of each,
/// and a loser exits.
pub(crate) fn manager(listen: &str, pki: &Pki) -> Flags {
    pairs([
        ("leader-elect", "false".into()),
        ("bind-address", listen.into()),
        ("tls-cert-file", pki.server.cert.display().to_string()),
        ("tls-private-key-file", pki.server.key.display().to_string()),
    ])
}

pub(crate) fn controllers(profile: &Profile, kubeconfig: &Path, port: u16, listen: &str, pki: &Pki) -> Flags {
    let mut flags = manager(listen, pki);
    flags.extend(pairs([
        ("kubeconfig", kubeconfig.display().to_string()),
        ("controllers", profile.controllers.join(",")),
        ("secure-port", port.to_string()),
        ("v", "2".into()),
    ]));
    // The same gates as the apiserver, as the components of a release expect.
    let gates = profile.apiserver.get(FEATURE_GATES);
    flags.extend(gates.map(|gates| (FEATURE_GATES.to_owned(), gates.clone())));
    flags
}

pub(crate) fn scheduler(kubeconfig: &Path, port: u16, listen: &str, pki: &Pki) -> Flags {
    let mut flags = manager(listen, pki);
    flags.extend(pairs([
        ("kubeconfig", kubeconfig.display().to_string()),
        ("secure-port", port.to_string()),
        ("v", "2".into()),
    ]));
    flags
}

const FEATURE_GATES: &str = "feature-gates";

/// A plugin's own flags, and the address on which it listens.
pub(crate) fn plugin(
    plugin: &ProfilePlugin,
    run: &Path,
    port: u16,
    listen: &str,
    servers: &BTreeMap<String, String>,
    pki: &Pki,
) -> anyhow::Result<Flags> {
    let mut flags = pairs([("listen", format!("{listen}:{port}"))]);
    if plugin.relays.is_none() {
        flags.extend(pairs([
            ("cert-file", pki.server.cert.display().to_string()),
            ("key-file", pki.server.key.display().to_string()),
        ]));
    }
    for (name, value) in &plugin.flags {
        flags.insert(name.clone(), fill(value, run, servers)?);
    }
    Ok(flags)
}

/// Replaces `{run}`, `{store.NAME}` and each `{key32}`. Every `{key32}` becomes a different key.
pub(crate) fn fill(text: &str, run: &Path, servers: &BTreeMap<String, String>) -> anyhow::Result<String> {
    let mut filled = text.replace("{run}", &run.display().to_string());
    for (name, url) in servers {
        filled = filled.replace(&format!("{{store.{name}}}"), url);
    }
    while filled.contains("{key32}") {
        filled = filled.replacen("{key32}", &random_base64()?, 1);
    }
    Ok(filled)
}

/// Applies a change of flags: an empty value removes the flag.
pub(crate) fn change(flags: &mut Flags, changes: &Flags) {
    for (name, value) in changes {
        if value.is_empty() {
            flags.remove(name);
        } else {
            flags.insert(name.clone(), value.clone());
        }
    }
}

fn pairs<const N: usize>(pairs: [(&str, String); N]) -> Flags {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde_json::json;

    use super::*;

    #[test]
    fn flags_are_adapted_to_the_release() {
        let given = pairs([("name", "m".into()), ("notify", "5s".into())]);
        let expected = pairs([("experimental-notify", "5s".into()), ("name", "m".into())]);
        let release = |experimental: &[&str], unknown: &[&str]| -> Artifact {
            let artifact = json!({"component": "kube-apiserver", "path": "/nowhere", "sha256": "", "size": 0,
                "source": {"kind": "module", "value": null}, "version": "v1.34.4", "go": "", "step": "prebuilt",
                "experimental_flags": experimental, "unknown_values": unknown});
            serde_json::from_value(artifact).unwrap()
        };
        assert_eq!(as_known(given.clone(), &release(&["notify", "absent"], &[])), expected);
        assert_eq!(as_known(given.clone(), &release(&[], &[])), given);
        let earlier = pairs([("experimental-hash", "true".into()), ("gates", "A=true".into())]);
        let with = pairs([("experimental-hash", "true".into())]);
        let without = pairs([("gates", "A=true".into())]);
        assert_eq!(as_known(earlier.clone(), &release(&["hash"], &["A=true"])), with);
        assert_eq!(as_known(earlier, &release(&["absent"], &[])), without);
        let given = pairs([("gates", "A=true,B=true".into()), ("apis", "new/v1=true".into()), ("none", String::new())]);
        let expected = pairs([("gates", "A=true".into()), ("none", String::new())]);
        assert_eq!(as_known(given, &release(&[], &["B=true", "new/v1=true"])), expected);
    }

    #[test]
    fn every_key_placeholder_becomes_a_different_key() {
        let servers = BTreeMap::from([("main".to_owned(), "https://127.0.0.1:1".to_owned())]);
        let text = fill("{key32} {key32} {run}/x {store.main}", Path::new("/r"), &servers).unwrap();
        let words: Vec<&str> = text.split(' ').collect();
        assert_ne!(words[0], words[1]);
        assert_eq!(STANDARD.decode(words[0]).unwrap().len(), 32);
        assert_eq!(words[2..], ["/r/x", "https://127.0.0.1:1"]);
    }

    #[test]
    fn empty_value_removes_the_flag() {
        let mut flags = pairs([("a", "1".into()), ("b", "2".into())]);
        change(&mut flags, &pairs([("a", String::new()), ("c", "3".into())]));
        assert_eq!(flags, pairs([("b", "2".into()), ("c", "3".into())]));
    }
}
