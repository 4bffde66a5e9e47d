//! Options of `doctor`.

use clap::Args as ClapArgs;

use super::MachineOptions;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask doctor
  cargo xtask doctor --arch all
  cargo xtask doctor --arch ARCH --json | jq -r '.findings[] | select(.status == \"problem\") | .fix'

Every finding has a status:
  ok       as it should be
  warning  slow, to be downloaded, or missing for what is not the default
  problem  `cargo xtask ci --arch ARCH`, with its default provider, would fail

Exit codes: 0 no problem, 102 a problem, 2 usage, 96 invalid target data, 130 interrupted.

JSON:
  {\"host\", \"ready\", \"targets\": [{\"arch\", \"provider\", \"ready\"}],
   \"findings\": [{\"check\", \"arch\", \"status\", \"text\", \"fix\"}]}
`arch` is null where a finding is about the machine as a whole, `fix` where there is none.")]
pub(crate) struct DoctorOptions {
    /// Architectures, separated by commas, or `all` [default: this machine's]
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    pub(crate) arch: Vec<String>,
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    /// Ask no mirror
    #[arg(long)]
    pub(crate) offline: bool,
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
