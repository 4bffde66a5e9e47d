//! Options of what looks at runners and decides.

use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};

use super::{Access, Output, ReachOptions};
use crate::args::{CloudOptions, MakeOptions};

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner providers
  cargo xtask runner providers --arch ARCH --json")]
pub(crate) struct ProvidersOptions {
    /// Only this architecture, in full
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner gc --repo OWNER/NAME
  cargo xtask runner gc --repo OWNER/NAME --older 30m --dry-run
  cargo xtask runner gc --repo OWNER/NAME --provider PROVIDER --os-cloud NAME

Only runners whose names were made here are touched, and none that is online or busy; and only servers that were made
for them.")]
pub(crate) struct GcOptions {
    #[command(flatten)]
    pub(crate) access: Access,
    /// Servers of this provider's cloud [default: of all clouds that are known here]
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    #[command(flatten)]
    pub(crate) cloud: CloudOptions,
    /// Only what is older: 90s, 30m, 2h, 1d
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = time)]
    pub(crate) older: Duration,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner scale --once --repo OWNER/NAME
  cargo xtask runner scale --once --repo OWNER/NAME --json
  cargo xtask runner scale --once --org ORG --group GROUP --jobs-of ORG/NAME

Jobs of pull requests from forks start no machine; but GitHub gives a job to any runner with its labels, so its settings
must keep forks away from the runners, as for `runner jit`.")]
pub(crate) struct ScaleOptions {
    #[command(flatten)]
    pub(crate) access: Access,
    #[command(flatten)]
    pub(crate) reach: ReachOptions,
    /// With --org: the repository whose waiting jobs count
    #[arg(long, value_name = "OWNER/NAME", requires = "org")]
    pub(crate) jobs_of: Option<String>,
    #[command(flatten)]
    pub(crate) make: MakeOptions,
    /// Look once and end; whoever wants it again calls again
    #[arg(long, required = true)]
    pub(crate) once: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner audit --repo OWNER/NAME
  cargo xtask runner audit --org ORG --warn 30 --format markdown >> \"$GITHUB_STEP_SUMMARY\"

The exit code is 6 when something is found that must not stay so.")]
pub(crate) struct AuditOptions {
    #[command(flatten)]
    pub(crate) access: Access,
    /// Warn so many days before a version of the agent is given no more jobs
    #[arg(long, value_name = "DAYS", default_value_t = 14)]
    pub(crate) warn: u32,
    /// Form of what is printed; --json is json
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    pub(crate) format: AuditForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuditForm {
    Text,
    Json,
    Markdown,
}

/// `90s`, `30m`, `2h`, `1d`.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time; write 90s, 30m, 2h or 1d");
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let number: u64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| wrong())?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400), ("0s", 0)] {
            assert_eq!(time(text), Ok(Duration::from_secs(seconds)));
        }
        for bad in ["", "h", "2", "2w", "-1h", "1.5h", "2ä", "99999999999999999999d", "9999999999999999999d"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
