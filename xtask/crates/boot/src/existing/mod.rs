//! The provider `existing`: an external cluster, known by a kubeconfig and optionally the address of its store.
//!
//! The provider starts and controls nothing. `config` reads the kubeconfig, `client` sends requests to the apiserver,
//! `rights` finds out what its user may do, and `sweep` removes what a run created there. The suite decides which
//! checks suit such a cluster.

mod client;
pub(crate) mod config;
mod rights;
mod sweep;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use model::{Cluster, ClusterInfo, External, ProfileInfo, StoreInfo, StoreKind, TlsFiles};
use sys::interrupt;
use sys::progress::Phase;
use sys::run_dir::write_private_file;

use client::Client;
pub(crate) use config::{Access, Identity};
pub use sweep::{HARMLESS, Left, Runs};

/// The time of an answer to a small request on the machine for which the deadlines were chosen.
const USUAL_ANSWER: Duration = Duration::from_millis(10);
/// No apiserver is slower than this; a larger value comes from a bad connection.
const LARGEST_FACTOR: f64 = 30.0;
/// Name of the component.
const APISERVER: &str = "kube-apiserver";
/// Number of connections, which may lead to different apiservers.
const CONNECTIONS: usize = 4;

/// Which cluster to use, and with which credentials.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub kubeconfig: &'a Path,
    /// The context to use instead of the kubeconfig's current one.
    pub context: Option<&'a str>,
    pub store: Option<&'a StoreAccess>,
    /// `--etcd-prefix` of its apiserver.
    pub prefix: &'a str,
    /// The name of the profile that the cluster represents.
    pub profile: &'a str,
    /// The slowdown to use instead of a measured one.
    pub factor: Option<f64>,
}

/// The store behind the apiserver, and a client certificate for it.
#[derive(Clone, Debug)]
pub struct StoreAccess {
    pub endpoint: String,
    pub tls: TlsFiles,
}

/// A cluster that answers and accepts the credentials.
pub struct Existing {
    pub cluster: Cluster,
    /// Component name to the version that the component reports.
    pub versions: BTreeMap<String, String>,
    /// Notes for the reader of the report.
    pub notes: Vec<String>,
    client: Client,
}

/// Describes the cluster from the kubeconfig alone, for `--dry-run`. Makes no request.
pub fn describe(request: &Request<'_>) -> anyhow::Result<String> {
    let access = Access::read(request.kubeconfig, request.context)?;
    Ok(format!("{} as {} (context {})", access.server, access.user, access.context))
}

/// Finds out whether the cluster can be used, and its version. [`Existing::end`] removes what this creates in the
/// cluster; if this fails, it removes that itself.
pub fn connect(request: &Request<'_>, run: &Path) -> anyhow::Result<Existing> {
    let access = Access::read(request.kubeconfig, request.context)?;
    tls::install();
    let phase = Phase::start("connect".to_owned());
    phase.status(format!("asking {}", access.server));
    let (tls, token) = files(&access, run)?;
    let client = Client::new(&access.server, &tls, token.as_deref())?;
    let version = version(&access, &tls, token.as_deref())?;
    let user = rights::user(&client)?.unwrap_or_else(|| access.user.clone());
    let store_version = request.store.map(client::store_version).transpose()?.flatten();
    interrupt::check()?;
    phase.status(format!("asking for the rights of {user}"));
    let missing = rights::missing(&client)?;
    rights::must_be_enough(&missing, &user)?;
    let mut notes: Vec<String> = rights::note(&missing, &user).into_iter().collect();
    let factor = request.factor.unwrap_or_else(|| factor(client.median()));
    notes.extend(sweep::note(&sweep::runs(&client)?, request));
    interrupt::check()?;
    if version.http1_only {
        notes.push(format!(
            "{} speaks only HTTP/1.1: checks that need HTTP/2 are skipped, the others run over HTTP/1.1",
            access.server
        ));
    }
    let run_label = run_label();
    phase.status("finding out whether other clients write into a new namespace");
    let fills_namespaces = match sweep::is_filled(&client, &run_label, factor) {
        Ok(filled) => filled,
        Err(error) => {
            // The namespace may exist already.
            let _ = sweep::remove(&client, &run_label, false, factor);
            return Err(error);
        }
    };
    let token = token.map(|token| private(run, "token", token.as_bytes())).transpose()?;
    let info = ClusterInfo {
        arch: version.arch.clone(),
        byte_order: None,
        provider: "existing".into(),
        execution: "unknown: external cluster".into(),
        factor,
        max_active: None,
        profiles: BTreeMap::from([(request.profile.to_owned(), profile(request, &access, tls, token, run))]),
        machine: None,
        hardware: None,
        external: Some(External { run_label, fills_namespaces, http1_only: version.http1_only }),
        node: None,
    };
    let mut versions = BTreeMap::from([(APISERVER.to_owned(), version.release.clone())]);
    versions.extend(store_version.map(|version| ("etcd".to_owned(), version)));
    phase.done(&format!("{} {} at {}, factor {factor:.1}", version.release, version.arch, access.server));
    Ok(Existing { cluster: Cluster { info, control: None }, versions, notes, client })
}

/// Removes what runs left in the cluster: the run with this mark, or all. Returns what it removed.
pub fn clean_up(request: &Request<'_>, which: &str, run: &Path) -> anyhow::Result<Runs> {
    let access = Access::read(request.kubeconfig, request.context)?;
    tls::install();
    let (tls, token) = files(&access, run)?;
    let client = Client::new(&access.server, &tls, token.as_deref())?;
    version(&access, &tls, token.as_deref())?;
    let mut runs = sweep::runs(&client)?;
    runs.retain(|run_label, _| which == "all" || which == run_label);
    if runs.is_empty() {
        return Ok(runs);
    }
    let run_label = run_label();
    let factor = request.factor.unwrap_or_else(|| factor(client.median()));
    let filled = sweep::is_filled(&client, &run_label, factor);
    for run_label in runs.keys().chain([&run_label]) {
        sweep::remove(&client, run_label, filled.as_ref().is_ok_and(|filled| *filled), factor)?;
    }
    filled.map(|_| runs)
}

impl Existing {
    /// The suffix of the names of all objects of this run.
    pub fn run_label(&self) -> &str {
        self.cluster.info.external.as_ref().map_or("", |external| &external.run_label)
    }

    /// Whether the server still accepts the credentials and has the same release. If a token expired or the server went
    /// away during the run, the refused requests say nothing about the server's promises. After an upgrade it is not
    /// clear to which release a verdict applies.
    pub fn still_answers(&self) -> anyhow::Result<()> {
        rights::user(&self.client).map(drop).context("the cluster no longer answers as it did at the start")?;
        let answer = self.client.get("/version")?.ok("GET of /version")?;
        let (found, before) = (answer["gitVersion"].as_str(), self.versions.get(APISERVER).map(String::as_str));
        ensure!(
            found == before,
            "the apiserver is {} now, but was {} at the start: repeat the run when no upgrade is under way",
            found.unwrap_or("unknown"),
            before.unwrap_or("unknown")
        );
        Ok(())
    }

    /// The uid and resource version of a namespace that every cluster has, for looking it up in the store.
    pub fn fixed_namespace(&self) -> anyhow::Result<(String, String)> {
        let answer = self.client.get("/api/v1/namespaces/default")?.ok("GET of the namespace `default`")?;
        let text = |field: &str| answer["metadata"][field].as_str().unwrap_or_default().to_owned();
        Ok((text("uid"), text("resourceVersion")))
    }

    /// Removes everything that the run created, also after Ctrl-C.
    pub fn end(&self) -> anyhow::Result<()> {
        let Some(external) = &self.cluster.info.external else { return Ok(()) };
        sweep::remove(&self.client, &external.run_label, external.fills_namespaces, self.cluster.info.factor)
    }
}

struct Version {
    release: String,
    arch: String,
    /// Whether any connection did not use HTTP/2.
    http1_only: bool,
}

/// Every apiserver behind the address must have the same release and architecture: otherwise it is unclear to which one
/// a verdict applies.
fn version(access: &Access, tls: &TlsFiles, token: Option<&str>) -> anyhow::Result<Version> {
    let mut seen = BTreeSet::new();
    let mut http1_only = false;
    for _ in 0..CONNECTIONS {
        let client = Client::new(&access.server, tls, token)?;
        let answer = client.get("/version")?.ok("GET of /version")?;
        http1_only |= client.used_http1();
        let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
        seen.insert((text("gitVersion"), text("platform")));
    }
    let (release, arch) = one_version(&seen).with_context(|| format!("the apiserver at {}", access.server))?;
    Ok(Version { release, arch, http1_only })
}

/// The release and architecture of the apiserver.
fn one_version(seen: &BTreeSet<(String, String)>) -> anyhow::Result<(String, String)> {
    let all: Vec<String> = seen.iter().map(|(release, platform)| format!("{release} on {platform}")).collect();
    ensure!(
        all.len() == 1,
        "answers with several versions, so a verdict would not apply to any one of them: {}; use the address of one",
        all.join(", ")
    );
    let (release, platform) = seen.first().context("no request was made")?;
    let arch = platform.split_once('/').map(|(_, arch)| arch).unwrap_or_default();
    ensure!(
        !arch.is_empty() && !release.is_empty(),
        "does not report its version on /version: `{release}`, `{platform}`"
    );
    Ok((release.clone(), arch.to_owned()))
}

/// PEM files for the clients of the suite, and the token. With a token there is no certificate.
fn files(access: &Access, run: &Path) -> anyhow::Result<(TlsFiles, Option<String>)> {
    let ca = private(run, "ca.crt", &access.ca)?;
    Ok(match &access.identity {
        Identity::Certificate { cert, key } => {
            let cert = private(run, "client.crt", cert)?;
            (TlsFiles { ca, cert, key: private(run, "client.key", key)? }, None)
        }
        Identity::Token(token) => (TlsFiles { ca, cert: PathBuf::new(), key: PathBuf::new() }, Some(token.clone())),
    })
}

/// `run` is a folder that only this user can read.
fn private(run: &Path, name: &str, content: &[u8]) -> anyhow::Result<PathBuf> {
    let file = run.join(format!("existing.{name}"));
    write_private_file(&file, content)?;
    Ok(file)
}

fn profile(request: &Request<'_>, access: &Access, tls: TlsFiles, token: Option<PathBuf>, run: &Path) -> ProfileInfo {
    let store = match request.store {
        Some(store) => (store.endpoint.clone(), store.tls.clone()),
        None => (String::new(), tls.clone()),
    };
    ProfileInfo {
        name: request.profile.to_owned(),
        apiserver: access.server.clone(),
        apiservers: Vec::new(),
        tls,
        token,
        client_certificate_required: false,
        kubeconfig: request.kubeconfig.to_owned(),
        prefix: request.prefix.to_owned(),
        stores: vec![StoreInfo {
            name: "main".into(),
            endpoint: store.0,
            members: Vec::new(),
            tls: store.1,
            resources: Vec::new(),
            kind: StoreKind::Etcd,
            programs: Vec::new(),
        }],
        // The flags of an external cluster are unknown.
        flags: BTreeMap::new(),
        variants: BTreeMap::new(),
        dir: run.to_owned(),
    }
}

/// How much slower the cluster and the connection to it are than the reference.
fn factor(answer: Duration) -> f64 {
    (answer.as_secs_f64() / USUAL_ANSWER.as_secs_f64()).clamp(1.0, LARGEST_FACTOR)
}

/// Five letters, like the nonce in the names of the project's own clusters, but unique to this run.
fn run_label() -> String {
    let mut random = [0u8; 5];
    // If the system provides no random bytes, the mark may repeat; the server then refuses it as a name in use.
    let _ = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut random);
    random.iter().map(|byte| char::from(b'a' + byte % 26)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pairs: &[(&str, &str)]) -> BTreeSet<(String, String)> {
        pairs.iter().map(|(release, platform)| ((*release).to_owned(), (*platform).to_owned())).collect()
    }

    #[test]
    fn differing_apiservers_are_refused() {
        let (release, arch) = one_version(&seen(&[("v1.36.3", "linux/riscv64")])).unwrap();
        assert_eq!((release.as_str(), arch.as_str()), ("v1.36.3", "riscv64"));
        for (pairs, words) in [
            (&[("v1.36.3", "linux/riscv64"), ("v1.36.3", "linux/amd64")][..], "v1.36.3 on linux/amd64, v1.36.3"),
            (&[("v1.36.3", "linux/amd64"), ("v1.35.0", "linux/amd64")], "v1.35.0 on linux/amd64"),
            (&[("v1.36.3", "linux")], "does not report its version on /version"),
            (&[("", "linux/amd64")], "does not report its version on /version"),
            (&[], "answers with several versions"),
        ] {
            let error = format!("{:#}", one_version(&seen(pairs)).err().unwrap());
            assert!(error.contains(words), "{pairs:?}: {error}");
        }
    }

    #[test]
    fn slow_connection_scales_deadlines_up_to_a_limit() {
        for (answer, expected) in [(1, 1.0), (10, 1.0), (50, 5.0), (5000, LARGEST_FACTOR)] {
            assert!((factor(Duration::from_millis(answer)) - expected).abs() < 1e-9, "{answer}");
        }
        let run_label = run_label();
        assert!(run_label.len() == 5 && run_label.bytes().all(|byte| byte.is_ascii_lowercase()), "{run_label}");
    }
}
