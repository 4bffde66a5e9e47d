//! Options of `audit`, which names the known defects of the Go release that built a program.

use std::path::PathBuf;

use clap::Args as ClapArgs;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Reads the build information of each program and looks up targets/toolchains.yaml. Exit code 100 if a program is affected.

Examples:
  cargo xtask audit /usr/local/bin/etcd /usr/local/bin/kube-apiserver
  cargo xtask audit etcd --json")]
pub(crate) struct AuditOptions {
    /// Programs
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
