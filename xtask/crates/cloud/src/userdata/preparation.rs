//! The part of the user data that prepares a machine for jobs without VM: packages from a newer Debian suite, and a
//! prebuilt harness with the address of the components that it tests.

use model::Size;

use super::is_package;
use super::scripts::{Place, download};
use crate::fault::Fault;

/// Maximum size of the list of components: about 1 KiB for each.
const LARGEST_LIST: u64 = 1 << 20;

/// What a machine gets in addition to the agent; nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preparation {
    pub suite: Option<Suite>,
    pub archive: Option<Archive>,
}

/// Packages from a suite that is newer than the machine's Debian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// Root of a Debian mirror, https.
    pub mirror: String,
    pub name: String,
    /// The oldest release of Debian on which its packages can be installed.
    pub oldest: u32,
    /// At least one.
    pub packages: Vec<String>,
}

/// The harness, and the components that it tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// The address of `archproof-VERSION-ARCH.tar.gz`.
    pub url: String,
    /// Lower-case hexadecimal.
    pub sha256: String,
    /// Size of the archive in bytes.
    pub size: Size,
    /// The address of the folder that `build --export` has written.
    pub components: String,
    /// The name of the list in it.
    pub list: String,
    /// SHA-256 of the list, lower-case hexadecimal.
    pub list_sha256: String,
}

impl Preparation {
    /// Refuses values that could end a word in a script. `https` checks the name, address and digest of a download.
    pub(super) fn check(&self, https: &dyn Fn(&str, &str, &str) -> Result<(), Fault>) -> Result<(), Fault> {
        if let Some(Suite { mirror, name, packages, .. }) = &self.suite {
            if let Some(bad) = packages.iter().chain([name]).find(|word| !is_package(word)) {
                return Err(Fault::config(format!("`{bad}` is not the name of a Debian package or suite")));
            }
            if !super::is_https(mirror) {
                return Err(Fault::config(format!(
                    "the Debian mirror `{mirror}` must be an https URL without special \
                                                  characters"
                )));
            }
        }
        if let Some(archive) = &self.archive {
            https("archive", &archive.url, &archive.sha256)?;
            https("list of components", &archive.list_url(), &archive.list_sha256)?;
        }
        Ok(())
    }

    /// Lines of the set-up script, empty without a preparation. A failure ends the script.
    pub(super) fn script(&self, place: &Place) -> String {
        let suite = self.suite.as_ref().map(Suite::script).unwrap_or_default();
        let archive = self.archive.as_ref().map(|archive| archive.script(place)).unwrap_or_default();
        suite + &archive
    }

    /// Lines of the agent's unit: variables for the jobs. In a unit `%` begins a specifier.
    pub(super) fn environment(&self, place: &Place) -> String {
        let Some(Archive { components, list_sha256, .. }) = &self.archive else { return String::new() };
        let (harness, components) = (place.harness, components.trim_end_matches('/').replace('%', "%%"));
        format!(
            "Environment=ARCHPROOF_ROOT={harness} \
             PATH={harness}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n\
             Environment=ARCHPROOF_COMPONENTS={components}#sha256={list_sha256}\n"
        )
    }
}

impl Suite {
    /// The packages of the suite have a low priority, so that no other package of the machine comes from there.
    fn script(&self) -> String {
        let Suite { mirror, name, oldest, packages } = self;
        let packages = packages.join(" ");
        format!(
            r#"# Packages of which the machine's own Debian has older versions.
# Debian's testing suite has no number.
if ! (. /etc/os-release && [ "$ID" = debian ] && [ "${{VERSION_ID:-{oldest}}}" -ge {oldest} ]); then
    found=$(. /etc/os-release && echo "$PRETTY_NAME") || true
    echo "archproof: the image must be Debian {oldest} or newer, and is ${{found:-unknown}}" >/dev/console || true
    exit 1
fi
printf 'Package: *\nPin: release n={name}\nPin-Priority: 100\n' >/etc/apt/preferences.d/archproof
echo 'deb {mirror} {name} main' >/etc/apt/sources.list.d/archproof.list
export DEBIAN_FRONTEND=noninteractive
apt-get --quiet --option DPkg::Lock::Timeout=300 update
apt-get --quiet --option DPkg::Lock::Timeout=300 --yes install --no-install-recommends --target-release {name} {packages}

"#
        )
    }
}

impl Archive {
    fn list_url(&self) -> String {
        format!("{}/{}", self.components.trim_end_matches('/'), self.list)
    }

    /// The list is downloaded only to find a wrong address or digest before a job does.
    fn script(&self, place: &Place) -> String {
        let harness = place.harness;
        let archive = download(&self.url, &self.sha256, self.size);
        let list = download(&self.list_url(), &self.list_sha256, Size::AtMost(LARGEST_LIST));
        format!(
            r#"# The harness for the jobs, which cannot change it, and the list of the components that it tests.
{archive}install -d -m 0755 {harness}
tar --extract --gzip --no-same-owner --strip-components=1 --file "$file" --directory {harness}
rm -f "$file"
test -x {harness}/archproof
{list}rm -f "$file"

"#
        )
    }
}
