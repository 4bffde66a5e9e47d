//! Options of `doctor`.

use clap::Args as ClapArgs;
use cli::{MachineOptions, native_job};
use model::NativeJob;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask doctor
  cargo xtask doctor --arch all
  cargo xtask doctor --components DIR
  cargo xtask doctor --for prebuilt
  cargo xtask doctor --arch ARCH --json | jq -r '.findings[] | select(.status == \"problem\") | .fix'

Every finding has a status:
  ok       as it should be
  warning  slow, to be downloaded, or missing but not needed by default
  problem  `cargo xtask ci --arch ARCH` would fail with its default provider

Exit codes: 0 no problem, 102 a problem, 2 usage, 96 invalid target data, 130 interrupted.

JSON:
  {\"host\", \"ready\", \"targets\": [{\"arch\", \"provider\", \"ready\"}],
   \"findings\": [{\"check\", \"arch\", \"status\", \"text\", \"fix\"}]}
`arch` is null if a finding is about the whole machine; `fix` is null if there is nothing to fix.")]
pub struct DoctorOptions {
    /// Architectures, separated by commas, or `all` [default: this machine's]
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    pub arch: Vec<String>,
    /// Components that `build --export` has written, as for `ci`: then nothing is built, and Go is not needed
    #[arg(long, value_name = "DIR|URL")]
    pub components: Option<String>,
    /// Only what a job on this machine needs that tests this machine's architecture without a VM
    #[arg(long = "for", value_parser = native_job(), value_name = "JOB", conflicts_with = "arch")]
    pub job: Option<NativeJob>,
    #[command(flatten)]
    pub machine: MachineOptions,
    /// Do not contact a mirror
    #[arg(long)]
    pub offline: bool,
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
}
