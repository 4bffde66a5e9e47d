//! Options of `differential`.

use clap::Args as ClapArgs;
use cli::SourceOptions;
use provider::ProviderOptions;

#[derive(Clone, Debug, ClapArgs)]
pub struct DifferentialOptions {
    /// The architecture under test [default: this machine's]
    #[arg(long, value_name = "ARCH")]
    pub arch: Option<String>,
    /// The reference [default: this machine's]
    #[arg(long, value_name = "ARCH")]
    pub against: Option<String>,
    /// How long to search
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub minutes: f64,
    /// How many inputs of each subject to try, instead of a time
    #[arg(long, value_name = "N", conflicts_with = "minutes")]
    pub cases: Option<u64>,
    /// Seed of the inputs [default: a new one, which is printed]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Prove that the search finds differences: give one side a defect, one after the other
    #[arg(long)]
    pub selftest: bool,
    /// Live level: only the sequence with this number
    #[arg(long, value_name = "N", requires = "seed", conflicts_with_all = ["cases", "minutes", "selftest"])]
    pub case: Option<u64>,
    /// Live level: sequences at the same time
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub width: usize,
    #[command(flatten)]
    pub provider: ProviderOptions,
    #[command(flatten)]
    pub sources: SourceOptions,
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}
