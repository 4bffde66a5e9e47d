//! Options of the `runner` commands for machines: `userdata`, `request`, `up` and `doctor`. They also come from the
//! environment variables of OpenStack's own clients.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use cli::native_job;
use cloud::config::{Entry, Settings};
use model::{NativeJob, Secret, ServerShape};

use super::{Access, ReachOptions};

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner jit --repo OWNER/NAME --arch ARCH --out jit
  cargo xtask runner userdata --arch ARCH --jit jit --out user-data
  cargo xtask runner userdata --arch ARCH --jit jit --dry-run
  cargo xtask runner userdata --arch ARCH --jit jit --out user-data --for prebuilt \\
    --archive https://HOST/archproof-VERSION-ARCH.tar.gz#sha256=DIGEST --components https://HOST/v1#sha256=DIGEST

The user data contains the just-in-time configuration: the key of one runner for one job. The command writes it to a
file that only the owner can read, or prints it if stdout is not a terminal or with --reveal.
Nova accepts at most 65,535 characters of base64, so the user data has at most 49,149 bytes.")]
pub(crate) struct UserdataOptions {
    /// The architecture of the machine
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: String,
    /// A file with the just-in-time configuration; - is standard input
    #[arg(long, value_name = "FILE", required_unless_present = "dry_run")]
    pub(crate) jit: Option<PathBuf>,
    /// The runner's name [default: that in the configuration]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) worker: WorkerOptions,
    /// Write the user data to this file, readable only by its owner
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Print the user data even if stdout is a terminal
    #[arg(long, conflicts_with = "out")]
    pub(crate) reveal: bool,
    /// Print the user data with the configuration masked, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the parts of the user data as JSON; with --out
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner up --repo OWNER/NAME --arch ARCH --os-cloud NAME
  cargo xtask runner up --repo OWNER/NAME --arch ARCH --os-cloud NAME --dry-run
  cargo xtask runner up --repo OWNER/NAME --arch ARCH --os-cloud NAME --for source
  cargo xtask runner up --local --jit jit.config

The command registers a runner for one job, creates a server that starts its agent, and waits until the runner is
online. After a failure or Ctrl-C it removes both; after a kill, `cargo xtask runner gc` finds both.
With --local, the agent runs on this machine as this user, who must not be root, and exits after its job.
A runner that pull requests from forks can reach, or may be able to reach, is refused with exit code 6.")]
pub(crate) struct RunnerUpOptions {
    #[command(flatten)]
    pub(crate) access: Access,
    /// Architecture of the machine; with --local, of this machine
    #[arg(long, value_name = "ARCH", required_unless_present = "local")]
    pub(crate) arch: Option<String>,
    /// Name of the architecture's runner in targets/matrix.yaml [default: the project's own]
    #[arg(long, value_name = "RUNNER")]
    pub(crate) runner: Option<String>,
    #[command(flatten)]
    pub(crate) reach: ReachOptions,
    #[command(flatten)]
    pub(crate) make: MakeOptions,
    /// Start the agent on this machine
    #[arg(long, conflicts_with_all = ["flavor", "image", "network", "security_groups", "key_name", "wait",
        "keep_default_user", "packages", "job", "archive", "components"])]
    pub(crate) local: bool,
    /// Configuration of the agent, made elsewhere by `runner jit`; if the repository is not public, this machine needs
    /// no token
    #[arg(long, value_name = "FILE", requires = "local")]
    pub(crate) jit: Option<PathBuf>,
    /// Allow a public repository, although the next job can read what a job leaves on this machine
    #[arg(long, requires = "local")]
    pub(crate) allow_persistent_public: bool,
}

/// Options for a server that becomes a runner.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct MakeOptions {
    #[command(flatten)]
    pub(crate) worker: WorkerOptions,
    #[command(flatten)]
    pub(crate) cloud: CloudOptions,
    /// Flavor (size) in the cloud, instead of the one in targets/runners.yaml
    #[arg(long, value_name = "NAME")]
    pub(crate) flavor: Option<String>,
    /// Image, instead of the one in targets/runners.yaml
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,
    /// Network, instead of the one in targets/runners.yaml
    #[arg(long, value_name = "NAME")]
    pub(crate) network: Option<String>,
    /// Security group, instead of those in targets/runners.yaml; may be repeated
    #[arg(long = "security-group", value_name = "NAME")]
    pub(crate) security_groups: Vec<String>,
    /// Key pair of the cloud, to log in to the machine
    #[arg(long, value_name = "NAME")]
    pub(crate) key_name: Option<String>,
    /// Minutes to wait until the runner is online
    #[arg(long = "wait", value_name = "MINUTES", default_value = "20", value_parser = minutes)]
    pub(crate) wait: Duration,
}

/// The contents of the cloud-init user data.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct WorkerOptions {
    /// Provider from targets/runners.yaml [default: the one that can create machines of the architecture]
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// Agent from targets/runners.yaml, the program that talks to GitHub [default: the agent of that machine]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// URL of an agent archive to use instead of the pinned one; needs its digest
    #[arg(long, value_name = "URL", requires = "agent_sha256")]
    pub(crate) agent_url: Option<String>,
    #[arg(long, value_name = "SHA256", requires = "agent_url")]
    pub(crate) agent_sha256: Option<String>,
    /// Size of that archive in bytes [default: at most `agent_limit` of targets/runners.yaml]
    #[arg(long, value_name = "BYTES", requires = "agent_url", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) agent_size: Option<u64>,
    /// Additional package of the machine's distribution; may be repeated
    #[arg(long = "package", value_name = "NAME")]
    pub(crate) packages: Vec<String>,
    /// Prepare the machine for this kind of job, without VM; needs a Debian image unless the agent contains Node.js
    #[arg(long = "for", value_parser = native_job(), value_name = "JOB")]
    pub(crate) job: Option<NativeJob>,
    /// With `--for prebuilt`, for jobs that do not bring their own: the archive of `dist` for the architecture
    #[arg(long, value_name = "URL#sha256=DIGEST", value_parser = pinned, requires = "job")]
    pub(crate) archive: Option<Pinned>,
    /// With `--for prebuilt`: the folder that `build --export` has written, with the digest of its list
    #[arg(long, value_name = "URL#sha256=DIGEST", value_parser = pinned, requires = "job")]
    pub(crate) components: Option<Pinned>,
    /// Minutes after which the machine powers off, even during a job
    #[arg(long, value_name = "N", default_value_t = 360, value_parser = clap::value_parser!(u32).range(5..=7200))]
    pub(crate) minutes: u32,
    /// Keep the image's default user, who can become root, for people with a key
    #[arg(long)]
    pub(crate) keep_default_user: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner request --provider osuosl-power > answers.yaml
  cargo xtask runner request --provider osuosl-power --answers answers.yaml

The first command prints a file to fill in. The second validates every answer and prints the application. Nothing is
sent: the forms are behind CAPTCHAs, and a person is responsible for the answers.")]
pub(crate) struct RequestOptions {
    /// Provider that requires an application; see `cargo xtask runner providers`
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: String,
    /// The filled-in file
    #[arg(long, value_name = "FILE")]
    pub(crate) answers: Option<PathBuf>,
    /// Write the output to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Only validate the answers
    #[arg(long, requires = "answers")]
    pub(crate) dry_run: bool,
    /// Print the form, or the value of each field, as JSON
    #[arg(long, conflicts_with = "out")]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner doctor
  cargo xtask runner doctor --for prebuilt
  cargo xtask runner doctor --json | jq -r '.ways[] | select(.works == \"yes\") | .way'

Run it on the future runner. Exit codes: 0 the machine can run more than unit tests, 4 it cannot; with --for: 0 it can run
this job, 4 it cannot.")]
pub(crate) struct RunnerDoctorOptions {
    /// Only this kind of job, without VM: what it lacks, with the command that installs it
    #[arg(long = "for", value_parser = native_job(), value_name = "JOB")]
    pub(crate) job: Option<NativeJob>,
    /// Print the planned probes, without running them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The cloud and its credentials. The variables are those of OpenStack's own clients.
#[derive(Clone, Debug, Default, ClapArgs)]
pub(crate) struct CloudOptions {
    /// Entry of clouds.yaml [default: OS_CLOUD, or the other OS_* variables]
    #[arg(long, value_name = "NAME", env = "OS_CLOUD")]
    pub(crate) os_cloud: Option<String>,
    /// Path of clouds.yaml [default: ./clouds.yaml, then the user's]
    #[arg(long, value_name = "FILE", env = "OS_CLIENT_CONFIG_FILE")]
    pub(crate) clouds_file: Option<PathBuf>,
    #[command(flatten)]
    variables: CloudVariables,
}

/// Hidden: secrets do not belong on the command line, and the other settings belong in the file that the dashboard
/// creates.
#[derive(Clone, Debug, Default, ClapArgs)]
struct CloudVariables {
    #[arg(long, hide = true, env = "OS_AUTH_URL")]
    os_auth_url: Option<String>,
    #[arg(long, hide = true, env = "OS_AUTH_TYPE")]
    os_auth_type: Option<String>,
    #[arg(long, hide = true, env = "OS_REGION_NAME")]
    os_region_name: Option<String>,
    #[arg(long, hide = true, env = "OS_INTERFACE")]
    os_interface: Option<String>,
    #[arg(long, hide = true, env = "OS_CACERT")]
    os_cacert: Option<PathBuf>,
    #[arg(long, hide = true, env = "OS_APPLICATION_CREDENTIAL_ID")]
    os_application_credential_id: Option<String>,
    #[arg(long, hide = true, env = "OS_APPLICATION_CREDENTIAL_NAME")]
    os_application_credential_name: Option<String>,
    #[arg(long, hide = true, env = "OS_APPLICATION_CREDENTIAL_SECRET", hide_env_values = true, value_parser = secret)]
    os_application_credential_secret: Option<Secret>,
    #[arg(long, hide = true, env = "OS_USERNAME")]
    os_username: Option<String>,
    #[arg(long, hide = true, env = "OS_USER_ID")]
    os_user_id: Option<String>,
    #[arg(long, hide = true, env = "OS_USER_DOMAIN_NAME")]
    os_user_domain_name: Option<String>,
    #[arg(long, hide = true, env = "OS_USER_DOMAIN_ID")]
    os_user_domain_id: Option<String>,
    #[arg(long, hide = true, env = "OS_PASSWORD", hide_env_values = true, value_parser = secret)]
    os_password: Option<Secret>,
    #[arg(long, hide = true, env = "OS_PROJECT_NAME")]
    os_project_name: Option<String>,
    #[arg(long, hide = true, env = "OS_PROJECT_ID")]
    os_project_id: Option<String>,
    #[arg(long, hide = true, env = "OS_PROJECT_DOMAIN_NAME")]
    os_project_domain_name: Option<String>,
    #[arg(long, hide = true, env = "OS_PROJECT_DOMAIN_ID")]
    os_project_domain_id: Option<String>,
}

impl CloudOptions {
    /// The cloud that the variables describe; `None` without `OS_AUTH_URL`.
    pub(crate) fn environment(&self) -> Option<Entry> {
        let set = self.variables.clone();
        let auth_url = set.os_auth_url.filter(|url| !url.is_empty())?;
        let auth = Settings {
            auth_url: Some(auth_url),
            application_credential_id: set.os_application_credential_id,
            application_credential_name: set.os_application_credential_name,
            application_credential_secret: set.os_application_credential_secret,
            username: set.os_username,
            user_id: set.os_user_id,
            user_domain_name: set.os_user_domain_name,
            user_domain_id: set.os_user_domain_id,
            password: set.os_password,
            project_name: set.os_project_name,
            project_id: set.os_project_id,
            project_domain_name: set.os_project_domain_name,
            project_domain_id: set.os_project_domain_id,
            ..Settings::default()
        };
        Some(Entry {
            auth,
            auth_type: set.os_auth_type,
            region_name: set.os_region_name,
            interface: set.os_interface,
            cacert: set.os_cacert.filter(|path| !path.as_os_str().is_empty()),
            ..Entry::default()
        })
    }
}

impl MakeOptions {
    /// The server from the target data, with the options applied.
    pub(crate) fn shape(&self, base: &ServerShape) -> ServerShape {
        let groups = if self.security_groups.is_empty() { &base.security_groups } else { &self.security_groups };
        ServerShape {
            cloud: base.cloud.clone(),
            flavor: self.flavor.clone().unwrap_or_else(|| base.flavor.clone()),
            image: self.image.clone().unwrap_or_else(|| base.image.clone()),
            network: self.network.clone().or_else(|| base.network.clone()),
            security_groups: groups.clone(),
        }
    }
}

/// An address with the digest of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pinned {
    pub(crate) url: String,
    /// SHA-256.
    pub(crate) sha256: String,
}

fn pinned(text: &str) -> Result<Pinned, String> {
    let split = text.split_once("#sha256=");
    let (url, sha256) = split.ok_or("it has no digest: expected URL#sha256=DIGEST")?;
    Ok(Pinned { url: url.to_owned(), sha256: sha256.to_owned() })
}

fn minutes(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1440.0).contains(number));
    number.map(|number| Duration::from_secs_f64(number * 60.0)).ok_or_else(|| "minutes, at most 1440".into())
}

fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}
