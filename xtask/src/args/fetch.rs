//! Options of `cargo xtask fetch`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use cli::MachineOptions;
use provider::ClusterArg;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask fetch --arch ARCH
  cargo xtask fetch --arch all --dry-run
  cargo xtask fetch --arch ARCH --cluster node
  cargo xtask fetch --kind --bundle FILE
  cargo xtask fetch --update-lock --arch ARCH --set go
  cargo xtask fetch --arch ARCH --locked --debian-mirror http://HOST/debian")]
pub(crate) struct FetchOptions {
    /// Architectures, separated by commas, or `all` [default: this machine's]
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    pub(crate) arch: Vec<String>,
    /// What the VMs run; a lock always covers both
    #[arg(long, value_enum, value_name = "CLUSTER", default_value = "planes")]
    pub(crate) cluster: ClusterArg,
    /// Also fetch the packages for Kind's node images
    #[arg(long)]
    pub(crate) kind: bool,
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    /// Fail with a list of the missing files instead of downloading anything
    #[arg(long)]
    pub(crate) offline: bool,
    /// Resolve the packages again and write targets/architectures/<ARCH>.lock
    #[arg(long, conflicts_with_all = ["cluster", "kind", "offline", "locked", "dry_run", "json"])]
    pub(crate) update_lock: bool,
    /// Only this set of packages of the lock, such as go or qemu-ARCH; may be repeated
    #[arg(long = "set", value_name = "SET", requires = "update_lock")]
    pub(crate) sets: Vec<String>,
    /// Write all needed packages into one archive, for a machine without network
    #[arg(long, value_name = "FILE", conflicts_with_all = ["update_lock", "dry_run", "json"])]
    pub(crate) bundle: Option<PathBuf>,
    /// Import a bundle into the cache; the locks must name everything in it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bundle", "arch", "cluster", "kind", "update_lock", "dry_run", "json"])]
    pub(crate) import: Option<PathBuf>,
    /// Print what would be downloaded, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the files of each VM as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
