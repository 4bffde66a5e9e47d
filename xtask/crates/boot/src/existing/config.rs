//! Reads a kubeconfig: the server, the CA to trust, the credentials. Accepts only credentials that authenticate both
//! sides. Makes no request.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::Value;

/// The address of a cluster and the credentials for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) context: String,
    pub(crate) user: String,
    /// `https://HOST:PORT` and perhaps a path, without a trailing slash.
    pub(crate) server: String,
    /// PEM.
    pub(crate) ca: Vec<u8>,
    pub(crate) identity: Identity,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// PEM.
    Certificate {
        cert: Vec<u8>,
        key: Vec<u8>,
    },
    Token(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Config {
    #[serde(default)]
    clusters: Vec<Named>,
    #[serde(default)]
    users: Vec<Named>,
    #[serde(default)]
    contexts: Vec<Named>,
    #[serde(default)]
    current_context: Option<String>,
}

/// An entry of one of the lists. Its content is under a key that depends on the list.
#[derive(Deserialize)]
struct Named {
    name: String,
    cluster: Option<Value>,
    user: Option<Value>,
    context: Option<Value>,
}

/// Unsupported kinds of users, with the reason.
const OTHER_USERS: &[(&str, &str)] = &[
    ("exec", "gets its credentials from a program"),
    ("auth-provider", "gets its credentials from a provider that kubectl has removed"),
    ("username", "has a password, which apiservers no longer accept"),
];

/// Impersonation: with it a user gives up rights, so ignoring these fields would run with more rights than configured.
const IMPERSONATION: &[(&str, &str)] = &[
    ("as", "impersonates another user"),
    ("as-uid", "impersonates another user"),
    ("as-groups", "impersonates another user"),
    ("as-user-extra", "impersonates another user"),
];

/// Unsupported settings of a cluster, with the reason.
const OTHER_CLUSTERS: &[(&str, &str)] = &[
    ("proxy-url", "is behind a proxy; checks examine connections, which a proxy would change"),
    (
        "tls-server-name",
        "has a certificate for a name other than its address; use an address that the certificate names",
    ),
];

impl Access {
    /// Reads the file. Uses `context` instead of the current context if given.
    pub(crate) fn read(file: &Path, context: Option<&str>) -> anyhow::Result<Access> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("failed to read the kubeconfig {}", file.display()))?;
        // Paths in the file are relative to its folder.
        let folder = file.parent().unwrap_or(Path::new(""));
        Access::parse(&text, folder, context).with_context(|| format!("the kubeconfig {}", file.display()))
    }

    fn parse(text: &str, folder: &Path, wanted: Option<&str>) -> anyhow::Result<Access> {
        Access::parse_with(text, folder, wanted, &|file| std::fs::read(file))
    }

    /// `read` returns the content of the files that the kubeconfig names.
    pub(crate) fn parse_with(
        text: &str,
        folder: &Path,
        wanted: Option<&str>,
        read: &dyn Fn(&Path) -> std::io::Result<Vec<u8>>,
    ) -> anyhow::Result<Access> {
        let config: Config = serde_yaml::from_str(text).context("it is not a kubeconfig")?;
        let wanted = match wanted.or(config.current_context.as_deref()) {
            Some(name) if !name.is_empty() => name,
            _ => bail!("it has no current-context: choose one of these with --context: {}", names(&config.contexts)),
        };
        let context = find("context", &config.contexts, wanted, |named| &named.context)?;
        let of = |field: &str| {
            let name = context[field].as_str().filter(|name| !name.is_empty());
            name.ok_or_else(|| anyhow!("its context `{wanted}` has no {field}"))
        };
        let cluster = find("cluster", &config.clusters, of("cluster")?, |named| &named.cluster)?;
        let user = find("user", &config.users, of("user")?, |named| &named.user)?;
        let entry = Entry { folder, read };
        Ok(Access {
            context: wanted.to_owned(),
            user: of("user")?.to_owned(),
            server: server(cluster).with_context(|| format!("its cluster `{}`", of("cluster").unwrap_or_default()))?,
            ca: entry.ca(cluster).with_context(|| format!("its cluster `{}`", of("cluster").unwrap_or_default()))?,
            identity: entry.identity(user).with_context(|| format!("its user `{}`", of("user").unwrap_or_default()))?,
        })
    }
}

fn names(list: &[Named]) -> String {
    let names: Vec<&str> = list.iter().map(|named| named.name.as_str()).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

fn find<'a>(
    what: &str,
    list: &'a [Named],
    name: &str,
    content: impl Fn(&'a Named) -> &'a Option<Value>,
) -> anyhow::Result<&'a Value> {
    let named = list.iter().find(|named| named.name == name);
    let named = named.ok_or_else(|| anyhow!("it has no {what} `{name}`; the existing ones are: {}", names(list)))?;
    content(named).as_ref().ok_or_else(|| anyhow!("its {what} `{name}` is empty"))
}

fn given(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false)) && value.as_str() != Some("")
}

fn refuse(entry: &Value, table: &[(&str, &str)]) -> anyhow::Result<()> {
    match table.iter().find(|(field, _)| given(&entry[*field])) {
        Some((field, why)) => bail!("{why} (`{field}`), which is not supported"),
        None => Ok(()),
    }
}

fn server(cluster: &Value) -> anyhow::Result<String> {
    refuse(cluster, OTHER_CLUSTERS)?;
    ensure!(
        !given(&cluster["insecure-skip-tls-verify"]),
        "accepts any certificate (`insecure-skip-tls-verify`), but a run must know which server it tests: set its \
         certificate-authority"
    );
    let server = cluster["server"].as_str().unwrap_or_default().trim_end_matches('/');
    let rest = server.strip_prefix("https://").unwrap_or_default();
    ensure!(!rest.is_empty(), "has the server `{server}`, which is not an https address");
    Ok(server.to_owned())
}

/// Reads fields whose value is inline, in base64, or in a file.
struct Entry<'a> {
    folder: &'a Path,
    read: &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>,
}

impl Entry<'_> {
    fn ca(&self, cluster: &Value) -> anyhow::Result<Vec<u8>> {
        let ca = self.data_or_file(cluster, "certificate-authority")?;
        ca.context("has no certificate-authority; add the CA of its certificate, even if it is a public one")
    }

    /// If the user has both a certificate and a token, the server uses the certificate.
    fn identity(&self, user: &Value) -> anyhow::Result<Identity> {
        refuse(user, IMPERSONATION)?;
        let cert = self.data_or_file(user, "client-certificate")?;
        let key = self.data_or_file(user, "client-key")?;
        match (cert, key) {
            (Some(cert), Some(key)) => return Ok(Identity::Certificate { cert, key }),
            (None, None) => {}
            (cert, _) => {
                let (there, missing) = if cert.is_some() { ("certificate", "key") } else { ("key", "certificate") };
                bail!("has a client-{there} and no client-{missing}");
            }
        }
        if let Some(token) = self.token(user)? {
            return Ok(Identity::Token(token));
        }
        refuse(user, OTHER_USERS).map_err(|error| {
            anyhow!(
                "{error}; create a user with a token: kubectl create token SERVICEACCOUNT --duration 2h, then kubectl \
                 config set-credentials NAME --token TOKEN"
            )
        })?;
        bail!("has neither a client certificate nor a token")
    }

    /// `tokenFile` takes precedence over `token`, as in client-go, which reads the file again for each use.
    fn token(&self, user: &Value) -> anyhow::Result<Option<String>> {
        let token = match user["tokenFile"].as_str().filter(|file| !file.is_empty()) {
            Some(file) => {
                let file = self.path(file);
                let failed = || format!("failed to read its tokenFile {}", file.display());
                String::from_utf8((self.read)(&file).with_context(failed)?).with_context(failed)?
            }
            None => user["token"].as_str().unwrap_or_default().to_owned(),
        };
        let token = token.trim();
        let plain = token.bytes().all(|byte| byte.is_ascii_graphic());
        ensure!(plain, "has a token with characters that an HTTP header cannot contain");
        Ok((!token.is_empty()).then(|| token.to_owned()))
    }

    /// `FIELD-data` takes precedence over `FIELD`, as in client-go.
    fn data_or_file(&self, entry: &Value, field: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let data = entry[format!("{field}-data")].as_str().unwrap_or_default();
        let packed: String = data.split_whitespace().collect();
        if !packed.is_empty() {
            let bytes = STANDARD.decode(&packed).with_context(|| format!("`{field}-data` is not base64"))?;
            return Ok(Some(pem(bytes, &format!("`{field}-data`"))?));
        }
        let Some(file) = entry[field].as_str().filter(|file| !file.is_empty()) else { return Ok(None) };
        let file = self.path(file);
        let bytes = (self.read)(&file).with_context(|| format!("failed to read `{field}`, {}", file.display()))?;
        Ok(Some(pem(bytes, &format!("`{field}`, {},", file.display()))?))
    }

    fn path(&self, given: &str) -> PathBuf {
        self.folder.join(given)
    }
}

fn pem(bytes: Vec<u8>, what: &str) -> anyhow::Result<Vec<u8>> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    ensure!(bytes.windows(BEGIN.len()).any(|part| part == BEGIN), "{what} is not PEM");
    Ok(bytes)
}

#[cfg(test)]
mod tests;
