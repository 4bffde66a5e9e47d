//! Options of the commands for a cluster that stays up: `up`, `down`, `logs`, `shell`, `kubectl`.

use clap::Args as ClapArgs;
use cli::{CpuOptions, SourceOptions};
use provider::ProviderOptions;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask up
  cargo xtask up --profile json --profile encrypted
  cargo xtask up --arch ARCH                      a VM if ARCH is not this machine's; see `cargo xtask shell`
  cargo xtask up --arch ARCH --name other --foreground")]
pub(crate) struct UpOptions {
    /// Architecture [default: this machine's]
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: Option<String>,
    /// Profiles to start; may be repeated [default: `default`, or the profile of the node]
    #[arg(long = "profile", value_name = "NAME")]
    pub(crate) profiles: Vec<String>,
    /// Name of the cluster, for `down`, `logs` and `shell`
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = cluster_name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) provider: ProviderOptions,
    #[command(flatten)]
    pub(crate) cpu: CpuOptions,
    #[command(flatten)]
    pub(crate) sources: SourceOptions,
    /// Stay in the foreground until Ctrl-C
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Print the addresses as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct NameOptions {
    /// Name given to `up`
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = cluster_name)]
    pub(crate) name: String,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct LogsOptions {
    /// Component, for example default/kube-apiserver, or `console` of a VM [default: list all]
    pub(crate) component: Option<String>,
    /// Name given to `up`
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = cluster_name)]
    pub(crate) name: String,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask shell                               a terminal in the VM; Ctrl-] leaves it
  cargo xtask shell -- uname -a                   one command; its exit code is passed on
  cargo xtask shell -- 'dmesg | tail'             a single argument is a shell command line
  cargo xtask shell --name other <script.sh")]
pub(crate) struct ShellOptions {
    /// Name given to `up`, or of a run that `ci --keep` left running
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = cluster_name)]
    pub(crate) name: String,
    /// Run this instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask kubectl -- get pods --all-namespaces
  cargo xtask kubectl --name other -- create deployment a --image registry.k8s.io/pause:TAG
  cargo xtask kubectl --profile json -- get --raw /version")]
pub(crate) struct KubectlOptions {
    /// Name given to `up`, or of a run that `ci --keep` left running
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = cluster_name)]
    pub(crate) name: String,
    /// Profile of the control plane, if the cluster has several
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Arguments for kubectl
    #[arg(last = true, value_name = "ARGUMENT")]
    pub(crate) arguments: Vec<String>,
}

/// Accepts names that are safe as a part of file names.
pub(super) fn cluster_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.len() <= 63 && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("at most 63 letters, digits, `-`, `_` and `.`, the first a letter or digit".into())
    }
}
