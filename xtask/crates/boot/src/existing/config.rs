//! Reading a kubeconfig: which server, whom to trust, who we are. Only what proves both sides is taken; no request is made.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::Value;

/// Where a cluster is and how to be let in.
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

/// An entry of one of the lists; what it holds is under a key of the list's own.
#[derive(Deserialize)]
struct Named {
    name: String,
    cluster: Option<Value>,
    user: Option<Value>,
    context: Option<Value>,
}

/// What a user may be that we cannot, with what to do instead.
const OTHER_USERS: &[(&str, &str)] = &[
    ("exec", "gets its credentials from a program"),
    ("auth-provider", "gets its credentials from a provider that kubectl has removed"),
    ("username", "has a password, which no apiserver takes any more"),
];

/// Rights that a user gives up, which nobody may take back by reading over it.
const IMPERSONATION: &[(&str, &str)] = &[
    ("as", "acts as somebody else"),
    ("as-uid", "acts as somebody else"),
    ("as-groups", "acts as somebody else"),
    ("as-user-extra", "acts as somebody else"),
];

/// What a cluster may ask for that we do not do.
const OTHER_CLUSTERS: &[(&str, &str)] = &[
    ("proxy-url", "is behind a proxy; checks look at connections, which a proxy would change"),
    ("tls-server-name", "has a certificate for another name than its address; give an address that it is for"),
];

impl Access {
    /// Reads the file; `context` instead of its current one.
    pub(crate) fn read(file: &Path, context: Option<&str>) -> anyhow::Result<Access> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("failed to read the kubeconfig {}", file.display()))?;
        // Paths in it are relative to it.
        let folder = file.parent().unwrap_or(Path::new(""));
        Access::parse(&text, folder, context).with_context(|| format!("the kubeconfig {}", file.display()))
    }

    fn parse(text: &str, folder: &Path, wanted: Option<&str>) -> anyhow::Result<Access> {
        Access::parse_with(text, folder, wanted, &|file| std::fs::read(file))
    }

    /// `read` gives the content of the files that the kubeconfig names.
    pub(crate) fn parse_with(
        text: &str,
        folder: &Path,
        wanted: Option<&str>,
        read: &dyn Fn(&Path) -> std::io::Result<Vec<u8>>,
    ) -> anyhow::Result<Access> {
        let config: Config = serde_yaml::from_str(text).context("it is no kubeconfig")?;
        let wanted = match wanted.or(config.current_context.as_deref()) {
            Some(name) if !name.is_empty() => name,
            _ => bail!("it has no current-context; --context takes one of: {}", names(&config.contexts)),
        };
        let context = find("context", &config.contexts, wanted, |named| &named.context)?;
        let of = |field: &str| {
            let name = context[field].as_str().filter(|name| !name.is_empty());
            name.ok_or_else(|| anyhow!("its context `{wanted}` names no {field}"))
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
    let named = named.ok_or_else(|| anyhow!("it has no {what} `{name}`; there are: {}", names(list)))?;
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
        "is to be believed whatever certificate it shows (`insecure-skip-tls-verify`); a run must know whom it has \
         asked: give its certificate-authority"
    );
    let server = cluster["server"].as_str().unwrap_or_default().trim_end_matches('/');
    let rest = server.strip_prefix("https://").unwrap_or_default();
    ensure!(!rest.is_empty(), "has the server `{server}`, which is no https address");
    Ok(server.to_owned())
}

/// Reads fields that are given in place, as base64, or as a file.
struct Entry<'a> {
    folder: &'a Path,
    read: &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>,
}

impl Entry<'_> {
    fn ca(&self, cluster: &Value) -> anyhow::Result<Vec<u8>> {
        let ca = self.data_or_file(cluster, "certificate-authority")?;
        ca.context("names no certificate-authority; put the CA of its certificate there, also if it is a public one")
    }

    /// Where there are both, the server looks at the certificate.
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
                "{error}; make a user with a token: kubectl create token SERVICEACCOUNT --duration 2h, then kubectl \
                 config set-credentials NAME --token TOKEN"
            )
        })?;
        bail!("has neither a client certificate nor a token")
    }

    /// A file's content is read anew by client-go and wins.
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
        ensure!(plain, "has a token with characters that no header can hold");
        Ok((!token.is_empty()).then(|| token.to_owned()))
    }

    /// `FIELD-data` wins over `FIELD`, as in client-go.
    fn data_or_file(&self, entry: &Value, field: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let data = entry[format!("{field}-data")].as_str().unwrap_or_default();
        let packed: String = data.split_whitespace().collect();
        if !packed.is_empty() {
            let bytes = STANDARD.decode(&packed).with_context(|| format!("`{field}-data` is no base64"))?;
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
    ensure!(bytes.windows(BEGIN.len()).any(|part| part == BEGIN), "{what} is no PEM");
    Ok(bytes)
}

#[cfg(test)]
mod tests;
