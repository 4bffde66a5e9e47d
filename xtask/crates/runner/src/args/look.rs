//! Options of the commands that inspect runners and decide: `providers`, `gc`, `scale` and `audit`.

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
    /// Only this architecture
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

The command deletes only runners whose names this project generated, none that is online or busy, and only servers that
were created for such runners.")]
pub(crate) struct GcOptions {
    #[command(flatten)]
    pub(crate) access: Access,
    /// Provider whose servers to delete [default: those of all configured clouds]
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    #[command(flatten)]
    pub(crate) cloud: CloudOptions,
    /// Minimum age: 90s, 30m, 2h, 1d
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = time)]
    pub(crate) older: Duration,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner scale --once --repo OWNER/NAME
  cargo xtask runner scale --once --repo OWNER/NAME --json
  cargo xtask runner scale --once --org ORG --group GROUP --jobs-of ORG/NAME

The command starts no machine for jobs of pull requests by bots or from forks. But GitHub gives a job to any runner with
its labels, so its settings must keep forks away from the runners, as for `runner jit`.")]
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
    /// Run once and exit; call the command again for the next round
    #[arg(long, required = true)]
    pub(crate) once: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner audit --repo OWNER/NAME
  cargo xtask runner audit --org ORG --warn 30 --format markdown >> \"$GITHUB_STEP_SUMMARY\"

The exit code is 6 if a finding needs action.")]
pub(crate) struct AuditOptions {
    #[command(flatten)]
    pub(crate) access: Access,
    /// Warn this many days before GitHub stops giving jobs to a version of the agent
    #[arg(long, value_name = "DAYS", default_value_t = 14)]
    pub(crate) warn: u32,
    /// Format of the output; --json selects json
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
    let wrong = || format!("`{text}` is not a duration: write 90s, 30m, 2h or 1d");
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
    fn durations_need_a_unit() {
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400), ("0s", 0)] {
            assert_eq!(time(text), Ok(Duration::from_secs(seconds)));
        }
        for bad in ["", "h", "2", "2w", "-1h", "1.5h", "2ä", "99999999999999999999d", "9999999999999999999d"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
