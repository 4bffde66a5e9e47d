//! `cargo xtask build`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use cli::{CpuOptions, SourceOptions};

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask build
  cargo xtask build --arch all
  cargo xtask build --arch ARCH,ARCH --component etcd
  cargo xtask build --arch ARCH --set node
  cargo xtask build --kubernetes 1.35
  cargo xtask build --kubernetes v1.36.2 --etcd 3.5
  cargo xtask build --etcd prebuilt:/opt/etcd/bin --json
  cargo xtask build --arch ARCH --export DIR && cargo xtask ci --components DIR     the second one on a machine of ARCH")]
pub(crate) struct BuildOptions {
    /// Architectures, separated by commas, or `all` [default: this machine's]
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    pub(crate) arch: Vec<String>,
    /// Only these components; may be repeated
    #[arg(long = "component", value_name = "NAME", value_delimiter = ',')]
    pub(crate) components: Vec<String>,
    /// All components of a set or a group of targets/components.yaml, for example `node`; may be repeated
    #[arg(long = "set", value_name = "NAME", value_delimiter = ',')]
    pub(crate) sets: Vec<String>,
    #[command(flatten)]
    pub(crate) cpu: CpuOptions,
    #[command(flatten)]
    pub(crate) sources: SourceOptions,
    /// Copy the components to this folder, with their digests and how they were built, for `ci --components` on machines
    /// without Go; without --component and --set, all that such a run needs
    #[arg(long, value_name = "DIR", conflicts_with = "dry_run")]
    pub(crate) export: Option<PathBuf>,
    /// Print what would be built, with the commands, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the artifacts as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
