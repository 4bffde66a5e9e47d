//! Options of the commands of `runner` that are about machines: `userdata`, `request`, `up` and `doctor`. What OpenStack's
//! own clients read from the environment is read here.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use cloud::config::{Entry, Settings};
use model::{Secret, ServerShape};

use super::{Access, ReachOptions};

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner jit --repo OWNER/NAME --arch ARCH --out jit
  cargo xtask runner userdata --arch ARCH --jit jit --out user-data
  cargo xtask runner userdata --arch ARCH --jit jit --dry-run

What comes out holds what the configuration does: the key of one runner for one job. It is written to a file that only
its owner can read, or printed where stdout is no terminal, or with --reveal.
A cloud reads it as user data; Nova takes at most 65,535 characters of its base64, so it has at most 49,149 bytes.")]
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
    /// Write it to this file, for its owner alone
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Print it even where stdout is a terminal
    #[arg(long, conflicts_with = "out")]
    pub(crate) reveal: bool,
    /// Print it with the configuration masked, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print what it consists of as JSON; with --out
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner up --repo OWNER/NAME --arch ARCH --os-cloud NAME
  cargo xtask runner up --repo OWNER/NAME --arch ARCH --os-cloud NAME --dry-run
  cargo xtask runner up --local --jit jit.config

It registers a runner for one job, makes a server that starts its agent, and waits until the runner is online. If that
does not come about, or on Ctrl-C, both are taken back; after a kill `cargo xtask runner gc` finds both.
With --local the agent is started here instead, as this user, who must not be root, and ends with its job.
A runner that pull requests from forks can reach, or of which that is unknown, is refused with exit code 6.")]
pub(crate) struct RunnerUpOptions {
    #[command(flatten)]
    pub(crate) access: Access,
    /// The architecture of the machine; with --local that of this one
    #[arg(long, value_name = "ARCH", required_unless_present = "local")]
    pub(crate) arch: Option<String>,
    /// Which of the architecture's runners in targets/matrix.yaml it is [default: the project's own]
    #[arg(long, value_name = "RUNNER")]
    pub(crate) runner: Option<String>,
    #[command(flatten)]
    pub(crate) reach: ReachOptions,
    #[command(flatten)]
    pub(crate) make: MakeOptions,
    /// Start the agent here
    #[arg(long, conflicts_with_all = ["flavor", "image", "network", "security_groups", "key_name", "keep_default_user"])]
    pub(crate) local: bool,
    /// The agent's configuration, made elsewhere by `runner jit`; for a repository that is not public no token is needed
    /// here
    #[arg(long, value_name = "FILE", requires = "local")]
    pub(crate) jit: Option<PathBuf>,
    /// Although the repository is public, and what a job leaves on this machine is there for the next one
    #[arg(long, requires = "local")]
    pub(crate) allow_persistent_public: bool,
}

/// A server that becomes a runner.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct MakeOptions {
    #[command(flatten)]
    pub(crate) worker: WorkerOptions,
    #[command(flatten)]
    pub(crate) cloud: CloudOptions,
    /// Another size than targets/runners.yaml says, by its name in the cloud
    #[arg(long, value_name = "NAME")]
    pub(crate) flavor: Option<String>,
    /// Another image
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,
    /// Another network
    #[arg(long, value_name = "NAME")]
    pub(crate) network: Option<String>,
    /// Another security group; may be repeated
    #[arg(long = "security-group", value_name = "NAME")]
    pub(crate) security_groups: Vec<String>,
    /// A key pair of the cloud, for people who want to look at the machine
    #[arg(long, value_name = "NAME")]
    pub(crate) key_name: Option<String>,
    /// Minutes until the runner must be online
    #[arg(long = "wait", value_name = "MINUTES", default_value = "20", value_parser = minutes)]
    pub(crate) wait: Duration,
}

/// What a machine is told at its first start.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct WorkerOptions {
    /// A provider of targets/runners.yaml [default: the one that has machines of the architecture to be made]
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// The program that talks to GitHub, of targets/runners.yaml [default: what the machine there has]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// An archive of the agent instead of the pinned one, with its digest
    #[arg(long, value_name = "URL", requires = "agent_sha256")]
    pub(crate) agent_url: Option<String>,
    #[arg(long, value_name = "SHA256", requires = "agent_url")]
    pub(crate) agent_sha256: Option<String>,
    /// The size of that archive in bytes [default: at most `agent_limit` of targets/runners.yaml]
    #[arg(long, value_name = "BYTES", requires = "agent_url", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) agent_size: Option<u64>,
    /// A package of the machine's distribution beside the usual ones; may be repeated
    #[arg(long = "package", value_name = "NAME")]
    pub(crate) packages: Vec<String>,
    /// The machine powers itself off after so many minutes, whatever it does
    #[arg(long, value_name = "N", default_value_t = 360, value_parser = clap::value_parser!(u32).range(5..=7200))]
    pub(crate) minutes: u32,
    /// Keep the image's own user, who may become root, for people with a key
    #[arg(long)]
    pub(crate) keep_default_user: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner request --provider osuosl-power > answers.yaml
  cargo xtask runner request --provider osuosl-power --answers answers.yaml

The first prints a file to fill in; the second looks at every answer and prints the application. Nothing is sent: the
forms are behind tests for robots, and a person answers for what they say.")]
pub(crate) struct RequestOptions {
    /// A provider that wants an application: see `cargo xtask runner providers`
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: String,
    /// The filled-in file
    #[arg(long, value_name = "FILE")]
    pub(crate) answers: Option<PathBuf>,
    /// Write it to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Only look at the answers
    #[arg(long, requires = "answers")]
    pub(crate) dry_run: bool,
    /// Print the form, or what goes into each field, as JSON
    #[arg(long, conflicts_with = "out")]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner doctor
  cargo xtask runner doctor --json | jq -r '.ways[] | select(.works) | .way'

Run it on the machine that is to become a runner. Exit codes: 0 it can serve more than unit tests, 4 it can not.")]
pub(crate) struct RunnerDoctorOptions {
    /// Say what would be looked at, and look at nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which cloud, and who asks. The variables are those of OpenStack's own clients.
#[derive(Clone, Debug, Default, ClapArgs)]
pub(crate) struct CloudOptions {
    /// An entry of clouds.yaml [default: OS_CLOUD, or what the other OS_* variables say]
    #[arg(long, value_name = "NAME", env = "OS_CLOUD")]
    pub(crate) os_cloud: Option<String>,
    /// A clouds.yaml [default: ./clouds.yaml, then that of the user]
    #[arg(long, value_name = "FILE", env = "OS_CLIENT_CONFIG_FILE")]
    pub(crate) clouds_file: Option<PathBuf>,
    #[command(flatten)]
    variables: CloudVariables,
}

/// Hidden: the command line is no place for secrets, and the rest has its place in a file made by the dashboard.
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
    /// What the variables say; none without the one that says where the cloud is.
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
            domain_name: None,
            domain_id: None,
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
    /// What the data say, unless something else was asked for.
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

fn minutes(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1440.0).contains(number));
    number.map(|number| Duration::from_secs_f64(number * 60.0)).ok_or_else(|| "minutes, at most 1440".into())
}

fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}
