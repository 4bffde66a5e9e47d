//! Options of `report site`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report site RUN RUN
  cargo xtask report site 20261121T120558Z-all --out site     a folder of several architectures includes all of them
  cargo xtask report site reports/* --out site                everything; other folders are skipped")]
pub(crate) struct SiteOptions {
    /// Run folders, or their names below reports/
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Output folder; the files of an older site in it are replaced [default: site below reports/]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// History from `report history append`; shows how earlier runs ended
    #[arg(long, value_name = "DIR")]
    pub(crate) history: Option<PathBuf>,
}
