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
    /// A run folder, or its name below reports/; a folder of several architectures stands for all of them
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) job: JobOptions,
    /// Print the objects in the order of their upload, with their sizes, and upload nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The JSON API; plain http only to this machine
    #[arg(long, value_name = "URL", default_value = "https://storage.googleapis.com")]
    pub(crate) endpoint: String,
    /// An access token; the command line is no place for one
    #[arg(long, hide = true, env = "GOOGLE_OAUTH_ACCESS_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<Secret>,
}
