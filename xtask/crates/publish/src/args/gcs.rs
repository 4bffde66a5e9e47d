//! Options of `report gcs`.

use clap::Args as ClapArgs;
use model::Secret;

use super::prow::JobOptions;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report gcs RUN --bucket gs://BUCKET --dry-run
  GOOGLE_OAUTH_ACCESS_TOKEN=… cargo xtask report gcs RUN --bucket gs://BUCKET/PREFIX --job ci-etcd-ARCH
  cargo xtask report gcs RUN --bucket gs://BUCKET --endpoint http://127.0.0.1:4443")]
pub(crate) struct GcsOptions {
    /// Run folder, or its name below reports/; a folder of several architectures includes all of them
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) job: JobOptions,
    /// Print the objects and their sizes in upload order, and upload nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// JSON API of the storage; plain http only for this machine
    #[arg(long, value_name = "URL", default_value = "https://storage.googleapis.com")]
    pub(crate) endpoint: String,
    /// Access token; from the variable, because other users can read the command line
    #[arg(long, hide = true, env = "GOOGLE_OAUTH_ACCESS_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<Secret>,
}
