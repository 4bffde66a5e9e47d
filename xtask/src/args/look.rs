//! Options of the commands that show data: `compare` of recorded runs, `inspect` of a live store.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::cluster::cluster_name;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask compare RUN RUN
  cargo xtask compare 20261121T120558Z-all          a folder of several architectures includes all of them
  cargo xtask compare RUN RUN --json | jq .values
  cargo xtask compare RUN --golden >targets/golden/1.36.yaml

Exit codes: 0 equal, 100 different, 4 nothing to compare, 2 usage.")]
pub(crate) struct CompareOptions {
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

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask inspect                                   every key with its revisions
  cargo xtask inspect /registry/configmaps/default/     the keys below a prefix
  cargo xtask inspect configmaps/default/a              one value, decoded; the profile's prefix is added
  cargo xtask inspect configmaps/default/a --hex        with the bytes next to the decoded fields
  cargo xtask inspect --profile encrypted secrets/      another control plane of the same cluster")]
pub(crate) struct InspectOptions {
    /// Key to decode, or prefix whose keys to list; without a leading slash, it is relative to the profile's prefix
    #[arg(value_name = "KEY|PREFIX")]
    pub(crate) key: Option<String>,
    /// Name given to `up`, or of a run that `ci --keep` left running
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = cluster_name)]
    pub(crate) name: String,
    /// Profile of the control plane [default: the only one, or `default`]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Read the store at this revision
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) revision: i64,
    /// Show the bytes next to each field
    #[arg(long)]
    pub(crate) hex: bool,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
