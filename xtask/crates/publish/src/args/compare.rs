//! Options of `compare`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask compare RUN RUN
  cargo xtask compare 20261121T120558Z-all          a folder of several architectures includes all of them
  cargo xtask compare RUN RUN --json | jq .values
  cargo xtask compare RUN --golden >targets/golden/1.36.yaml

Exit codes: 0 equal, 100 different, 4 nothing to compare, 2 usage.")]
pub struct CompareOptions {
    /// Run folders, or their names below reports/; at least two runs in all
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Print the lengths and digests of one run's stored values, as in targets/golden/, instead of comparing
    #[arg(long, conflicts_with = "json")]
    pub(crate) golden: bool,
    /// Where junit-compare.xml, compare.json and compare.txt go [default: the runs' common folder, or a new one]
    #[arg(long, value_name = "DIR", conflicts_with = "golden")]
    pub(crate) out: Option<PathBuf>,
    /// Print the comparison as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
