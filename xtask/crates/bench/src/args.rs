//! Options of `bench`.

use clap::Args as ClapArgs;
use cli::MachineOptions;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask bench
  cargo xtask bench --only ready --runs 5
  cargo xtask bench --only cold-build --json
  cargo xtask bench --boot --arch all
  cargo xtask bench --boot --arch ARCH --runs 1
  cargo xtask bench --cluster --arch ARCH
  cargo xtask bench --differential --arch ARCH")]
pub struct BenchOptions {
    /// Only these benchmarks; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with = "machines")]
    pub only: Vec<String>,
    /// Measure system VMs instead: cold and warm starts, snapshots, memory, downloads
    #[arg(long, group = "machines")]
    pub boot: bool,
    /// Measure whole clusters instead: nodes in VMs until a Pod runs, cold and warm, and Kind if a container engine
    /// exists
    #[arg(long, group = "machines")]
    pub cluster: bool,
    /// Measure differential runs instead: inputs per minute of each group of subjects, requests per second of the live level
    #[arg(long, group = "machines")]
    pub differential: bool,
    /// Architectures to measure, separated by commas, or `all` [default: this machine's]
    #[arg(long, value_name = "ARCH", value_delimiter = ',', requires = "machines")]
    pub arch: Vec<String>,
    #[command(flatten)]
    pub machine: MachineOptions,
    /// Number of runs of each benchmark; the median counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub runs: usize,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}
