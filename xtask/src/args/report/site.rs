//! Options of `report site`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report site RUN RUN
  cargo xtask report site 20261121T120558Z-all --out site     a folder of several architectures stands for all of them
  cargo xtask report site reports/* --out site                everything; what is no run is left out")]
pub(crate) struct SiteOptions {
    /// Run folders, or their names below reports/
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Where the site goes; what an older site left there is replaced [default: site below reports/]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// What `report history append` has written: shows how earlier runs ended
    #[arg(long, value_name = "DIR")]
    pub(crate) history: Option<PathBuf>,
}
