//! Options of `differential`.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args as ClapArgs, Parser, ValueEnum};
use cli::{CpuOptions, Failure, SourceOptions};
use provider::{ProviderArg, ProviderOptions};

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LevelArg {
    /// Packages of Kubernetes, in a program that is built for both architectures
    Library,
    /// Control planes of both architectures
    Live,
    /// Controllers and schedulers of both architectures, each at a control plane of its architecture
    Controllers,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
The same generated inputs go to programs, or control planes, of two architectures; each difference between their answers is an effect of the
architecture. The reference runs twice: a difference between its own answers is nondeterminism, and is reported as such.
Differences are shrunk and grouped by cause. A group that `differences:` of targets/expectations.yaml does not name fails
the run.

Examples:
  cargo xtask differential --arch ARCH                          search for a minute
  cargo xtask differential --arch ARCH --minutes 30 --seed 7
  cargo xtask differential --arch ARCH --subject patch. --cases 100000
  cargo xtask differential --arch ARCH --level live             the same API requests to control planes of both
  cargo xtask differential --arch ARCH --level controllers      the same objects to controllers of both
  cargo xtask differential --level live --kubeconfig FILE       an external cluster against control planes of this machine
  cargo xtask differential --arch ARCH --replay                 only the inputs in targets/differential
  cargo xtask differential --arch ARCH --input FILE             one input, for example of a report
  cargo xtask differential --list                               the subjects
  cargo xtask differential --selftest                           the search must find each known defect

Exit codes: 0 no new differences, 2 usage, 4 nothing ran, 100 new differences (with --selftest: a defect was not found),
101 a build failed, 102 a program could not be run, 130 interrupted.")]
pub struct DifferentialOptions {
    /// The architecture under test [default: this machine's]
    #[arg(long, value_name = "ARCH")]
    pub arch: Option<String>,
    /// The reference [default: this machine's]
    #[arg(long, value_name = "ARCH")]
    pub against: Option<String>,
    /// What to compare
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LevelArg::Library)]
    pub level: LevelArg,
    /// Only subjects whose names start with this prefix, or at the live level sequences of this family; may be repeated
    #[arg(long = "subject", value_name = "PREFIX")]
    pub subjects: Vec<String>,
    /// How long to search
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub minutes: f64,
    /// How many inputs of each subject, requests at the live level, or scenarios of controllers to try instead of a time
    #[arg(long, value_name = "N", conflicts_with = "minutes")]
    pub cases: Option<u64>,
    /// Seed of the inputs [default: a new one, which is printed]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Live level and level of controllers: only the sequence with this number
    #[arg(long, value_name = "N", requires = "seed", conflicts_with_all = ["cases", "minutes", "selftest"])]
    pub case: Option<u64>,
    /// Live level and level of controllers: sequences at the same time
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub width: usize,
    /// Level of controllers: only the controllers are of ARCH, at a control plane of the reference; much faster if ARCH is
    /// emulated
    #[arg(long)]
    pub only_controllers: bool,
    /// Live level: the side under test is an external cluster. Only its namespace and definitions of the run change there;
    /// all other writes are dry runs
    #[arg(long, value_name = "FILE", conflicts_with_all = ["selftest", "only_controllers", "cpu"])]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// Only evaluate the kept inputs, or play the kept sequences, without a search
    #[arg(long, conflicts_with_all = ["cases", "minutes", "seed"])]
    pub replay: bool,
    /// Only evaluate the input, or play the sequence, of this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cases", "minutes", "seed", "replay"])]
    pub input: Option<PathBuf>,
    /// Print the subjects of the library level
    #[arg(long, conflicts_with_all = ["replay", "input"])]
    pub list: bool,
    /// Prove that the search finds differences: give one side a defect, one after the other
    #[arg(long, conflicts_with_all = ["replay", "input", "list", "arch", "cpu", "against", "cases", "minutes"])]
    pub selftest: bool,
    #[command(flatten)]
    pub provider: ProviderOptions,
    #[command(flatten)]
    pub cpu: CpuOptions,
    #[command(flatten)]
    pub sources: SourceOptions,
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

impl DifferentialOptions {
    /// The options of a search on the live level, as `bench` measures it.
    ///
    /// # Errors
    /// `words` are no options of `differential`.
    pub fn live(words: &[&str]) -> Result<DifferentialOptions, Failure> {
        DifferentialOptions::parse(["--level", "live"].iter().chain(words).copied())
    }

    fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<DifferentialOptions, Failure> {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            options: DifferentialOptions,
        }
        let parsed = Line::try_parse_from(std::iter::once("differential").chain(words));
        parsed.map(|line| line.options).map_err(|error| Failure::usage(anyhow::Error::from(error)))
    }

    /// # Errors
    /// An option that the level would ignore.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let levels = [LevelArg::Library, LevelArg::Live, LevelArg::Controllers];
        let [library, live, controllers] = levels.map(|level| self.level == level);
        let is_process = self.provider.provider.is_none_or(|provider| provider == ProviderArg::Process);
        let kept = self.replay || self.input.is_some();
        let rules = [
            (self.only_controllers && !controllers, "--only-controllers belongs to --level controllers"),
            (self.only_controllers && !is_process, "--only-controllers runs processes: leave out --provider"),
            (self.kubeconfig.is_some() && !live, "--kubeconfig belongs to --level live"),
            (self.list && !library, "--list prints the subjects of the library level: leave out --level"),
            (kept && controllers, "no scenarios of controllers are kept: repeat one by --seed and --case"),
            (self.case.is_some() && library, "--case belongs to --level live and --level controllers"),
            (!self.minutes.is_finite() || self.minutes < 0.0, "--minutes must be a number that is not negative"),
        ];
        match rules.into_iter().find(|(broken, _)| *broken) {
            Some((_, rule)) => Err(Failure::usage(anyhow!(rule))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_a_level_would_ignore_are_refused() {
        let check = |line: &str| {
            let options = DifferentialOptions::parse(line.split(' ')).unwrap();
            options.check().map_err(|failure| failure.error.to_string())
        };
        for (line, expected) in [
            ("--level controllers --replay", "no scenarios"),
            ("--level controllers --input x", "no scenarios"),
            ("--level live --list", "--list prints"),
            ("--seed 1 --case 2", "--case belongs"),
            ("--minutes=-1", "--minutes must"),
            ("--minutes=nan", "--minutes must"),
            ("--only-controllers", "--only-controllers belongs"),
            ("--kubeconfig x", "--kubeconfig belongs"),
        ] {
            assert!(check(line).unwrap_err().contains(expected), "{line}");
        }
        for line in ["--replay", "--level live --input x", "--level controllers --seed 1 --case 2", "--list"] {
            assert_eq!(check(line), Ok(()), "{line}");
        }
    }

    #[test]
    fn selftest_has_one_architecture() {
        // The known differences of another one would pass for those of the defects.
        for line in ["--selftest --arch x", "--selftest --cpu x", "--selftest --minutes 1"] {
            assert!(DifferentialOptions::parse(line.split(' ')).is_err(), "{line}");
        }
    }
}
