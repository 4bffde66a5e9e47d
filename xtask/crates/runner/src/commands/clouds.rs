//! Finds the cloud: from the options, the environment, or a `clouds.yaml`. Also marks the servers that this tool
//! creates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cloud::config::{self, Access};
use cloud::{Fault, Microversion, Session};
use model::Cloud;
use sys::progress;
use targets::Catalogue;

use super::Stop;
use crate::Error;
use crate::args::CloudOptions;

/// Metadata key of a server: the start of `up` that created it.
pub(crate) const SERVER_RUN: &str = "archproof-run";

/// The folders in which OpenStack's own clients search, in their order. `config` is the user's configuration folder.
fn places(config: Option<&Path>) -> Vec<PathBuf> {
    let folders = [Some(PathBuf::from(".")), config.map(|dir| dir.join("openstack")), Some("/etc/openstack".into())];
    folders.into_iter().flatten().map(|folder| folder.join("clouds.yaml")).collect()
}

/// The access to a cloud from any source; `None` if no source defines one. `cloud` is the name in
/// `targets/runners.yaml`, which an entry of `clouds.yaml` may also have.
pub(crate) fn find(options: &CloudOptions, home: Option<&Path>, cloud: &str) -> Result<Option<Access>, Stop> {
    let named = options.os_cloud.as_deref().filter(|name| !name.is_empty());
    if named.is_none()
        && let Some(entry) = options.environment()
    {
        return Ok(Some(config::access(&entry, "the environment")?));
    }
    let given = options.clouds_file.clone().filter(|file| !file.as_os_str().is_empty());
    let folder = home.map(|home| home.join(".config"));
    let file = match given {
        Some(file) => Some(file),
        None => places(folder.as_deref()).into_iter().find(|file| file.is_file()),
    };
    let Some(file) = file else {
        return match named {
            Some(name) => Err(Error::Config(format!("no clouds.yaml found for the cloud `{name}`")).into()),
            None => Ok(None),
        };
    };
    let text = read(&file)?;
    let secure = file.with_file_name("secure.yaml");
    let secure = secure.is_file().then(|| read(&secure)).transpose()?;
    let shown = file.display().to_string();
    let entry = |name| config::entry(&shown, &text, secure.as_deref(), name);
    // An entry with the name in targets/ needs no option, and neither does a file with a single entry.
    let entry = match named {
        Some(name) => entry(Some(name)),
        None => entry(Some(cloud)).or_else(|_| entry(None)),
    }?;
    Ok(Some(config::access(&entry, &shown)?))
}

/// The clouds that may contain servers: the clouds of a provider, or all clouds with known access.
pub(crate) fn reachable(
    catalogue: &Catalogue,
    options: &CloudOptions,
    home: Option<&Path>,
    provider: Option<&str>,
) -> Result<Vec<(String, Microversion, Access)>, Stop> {
    let machines = catalogue.runners.machines.iter();
    let of_provider = |name: &str| -> Vec<&str> {
        let own = machines.clone().filter(|machine| machine.provider == name);
        own.filter_map(|machine| machine.server.as_ref()).map(|server| server.cloud.as_str()).collect()
    };
    let wanted = provider.map(of_provider);
    if let (Some(name), Some([])) = (provider, wanted.as_deref()) {
        let text =
            format!("`{name}` has no machines that can be created in a cloud; see `cargo xtask runner providers`");
        return Err(Error::Config(text).into());
    }
    let mut found: Vec<(String, Microversion, Access)> = Vec::new();
    for cloud in &catalogue.runners.clouds {
        if wanted.as_ref().is_some_and(|wanted| !wanted.contains(&cloud.name.as_str())) {
            continue;
        }
        let access = find(options, home, &cloud.name)?;
        if access.is_none() && wanted.is_some() {
            return Err(missing(cloud).into());
        }
        // Several clouds may share one access.
        let known = |access: &Access| found.iter().any(|(_, _, other)| other == access);
        if let Some(access) = access.filter(|access| !known(access)) {
            found.push((cloud.name.clone(), newest(cloud)?, access));
        }
    }
    Ok(found)
}

/// Like [`find`], but an error if no access is defined.
pub(crate) fn open(options: &CloudOptions, home: Option<&Path>, cloud: &Cloud) -> Result<Session, Stop> {
    let access = find(options, home, &cloud.name)?.ok_or_else(|| missing(cloud))?;
    Ok(Session::open(access)?)
}

pub(crate) fn newest(cloud: &Cloud) -> Result<Microversion, Fault> {
    cloud.microversion.parse()
}

fn missing(cloud: &Cloud) -> Error {
    let dashboard = cloud.dashboard.as_deref().map_or_else(String::new, |url| format!(" at {url}"));
    Error::Config(format!(
        "no credentials for {}: create an application credential (Identity, Application Credentials{dashboard}), \
         put its clouds.yaml into ~/.config/openstack and give --os-cloud, or set OS_AUTH_URL, \
         OS_APPLICATION_CREDENTIAL_ID and OS_APPLICATION_CREDENTIAL_SECRET",
        cloud.name
    ))
}

/// Reads a file with secrets; warns if other users can read it.
fn read(file: &Path) -> Result<String, Error> {
    use std::os::unix::fs::PermissionsExt;
    let shown = file.display();
    let wrong = |error| Error::Config(format!("failed to read {shown}: {error}"));
    let mode = std::fs::metadata(file).map_err(wrong)?.permissions().mode();
    if mode & 0o077 != 0 {
        progress::say(&format!("warning: other users can read {shown}: run `chmod 600 {shown}`"));
    }
    std::fs::read_to_string(file).map_err(wrong)
}

/// The metadata of a server that this tool creates.
pub(crate) fn marks(run: &str, runner: &str, scope: &str) -> BTreeMap<String, String> {
    let marks = [(SERVER_RUN, run), (crate::gc::SERVER_RUNNER, runner), (crate::gc::SERVER_SCOPE, scope)];
    marks.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}
