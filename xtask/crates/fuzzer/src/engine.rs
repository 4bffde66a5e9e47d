//! Starts libFuzzer on one target and reads its output: <https://llvm.org/docs/LibFuzzer.html>.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Serialize;
use sys::exec::{self, ExecError, Shell, cmd};
use sys::progress::{self, Phase};

/// More than the largest corpus and its unpacked form take; a target that exceeds it keeps too much of its input.
const MEMORY_MIB: u32 = 1024;
/// Seconds for one input: much more than the slowest one takes on a busy machine.
const SLOWEST_INPUT: u32 = 20;
/// Maximum length of an input, in bytes.
const LONGEST_INPUT: u32 = 16 << 10;
/// The name of an input that is slow, but ends in time.
const SLOW: &str = "-slow-unit-";
/// Time for reading the corpus, which libFuzzer does not count, and for its exit.
const MARGIN: Duration = Duration::from_secs(1800);

/// The target to run, and the paths of its files.
pub(super) struct Order<'a> {
    pub(super) target: &'a str,
    pub(super) seconds: u64,
    pub(super) committed: &'a Path,
    pub(super) working: &'a Path,
    pub(super) findings: &'a Path,
    pub(super) temporary: &'a Path,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Outcome {
    pub(super) executions: u64,
    pub(super) seconds: f64,
    /// Edges of the program that were reached.
    pub(super) coverage: u64,
    /// Edges with how often each was reached, and compared values.
    pub(super) features: u64,
    /// Number of inputs.
    pub(super) corpus: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finding: Option<Finding>,
}

/// An input that shows a defect.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) reason: String,
    pub(super) input: PathBuf,
    /// The end of libFuzzer's output, with the stack.
    pub(super) output: PathBuf,
}

/// The part of libFuzzer's output that was read.
#[derive(Debug, Default)]
struct Log {
    outcome: Outcome,
    /// Whether the program has coverage counters.
    instrumented: bool,
    panic: Vec<String>,
    error: Option<String>,
    input: Option<PathBuf>,
}

/// Runs libFuzzer. Ctrl-C ends the run early; the result has the counts until then.
pub(super) fn run(program: &Path, order: &Order<'_>, phase: &Phase) -> anyhow::Result<Outcome> {
    for folder in [order.working, order.temporary] {
        fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    }
    let Order { target, seconds, committed, working, findings, temporary } = order;
    let prefix = format!("{}/{target}-", findings.display());
    let (time, memory) = (format!("-max_total_time={seconds}"), format!("-rss_limit_mb={MEMORY_MIB}"));
    let (slowest, longest) = (slowest(), format!("-max_len={LONGEST_INPUT}"));
    // An input that is only slow is no finding, and libFuzzer measures wall time: every target on a busy machine has some.
    let unreported = format!("-report_slow_units={}", SLOWEST_INPUT + 1);
    let shell = Shell::new()?;
    // Without a symbolizer for the names of new functions: it takes more time than the target.
    let command = cmd!(
        shell,
        "{program} {time} {memory} {slowest} {unreported} {longest} -artifact_prefix={prefix} -print_final_stats=1 -print_funcs=0
         {working} {committed}"
    );
    let command = command.env("ARCHPROOF_FUZZ_TARGET", target).env("TMPDIR", temporary).env("RUST_BACKTRACE", "1");
    let begin = Instant::now();
    let mut log = Log::default();
    let ended = exec::run_with(command, Duration::from_secs(*seconds).saturating_add(MARGIN), |line| {
        if let Some(line) = line {
            log.read(line);
            phase.status(format!("{target}: {} executions", log.outcome.executions));
        }
    });
    log.outcome.seconds = begin.elapsed().as_secs_f64();
    let tail = match ended {
        Ok(_) | Err(ExecError::Interrupted { .. }) => String::new(),
        Err(ExecError::Failed { tail, .. }) if log.input.is_some() => tail,
        Err(error) => return Err(error).with_context(|| format!("libFuzzer did not finish {target}")),
    };
    if !log.instrumented && !sys::interrupt::requested() {
        bail!("the program of {target} counts no coverage: the compiler ignored the flags of its build");
    }
    log.outcome.finding = log.finding(&tail)?;
    if let Some(finding) = log.outcome.finding.take_if(|finding| finding.reason.starts_with("timeout"))
        && is_slow(program, target, &finding.input)?
    {
        log.outcome.finding = Some(finding);
    }
    Ok(log.outcome)
}

fn slowest() -> String {
    format!("-timeout={SLOWEST_INPUT}")
}

/// Runs an input that took too long once more: on a busy machine the process may have had no processor.
fn is_slow(program: &Path, target: &str, input: &Path) -> anyhow::Result<bool> {
    let (shell, slowest) = (Shell::new()?, slowest());
    let command = cmd!(shell, "{program} {slowest} {input}").env("ARCHPROOF_FUZZ_TARGET", target);
    match exec::run(command, MARGIN) {
        Ok(_) => {
            progress::say(&format!("{target}: {} took more than {SLOWEST_INPUT} s, but not again", input.display()));
            Ok(false)
        }
        Err(ExecError::Failed { .. }) => Ok(true),
        Err(error) => Err(error).with_context(|| format!("failed to repeat {}", input.display())),
    }
}

/// The command that runs an input again.
pub(super) fn repeat(target: &str, input: &Path) -> String {
    format!("cargo xtask fuzz {target} --input {}", input.display())
}

impl Log {
    fn read(&mut self, line: &str) {
        let number = |text: &str| text.trim().parse::<u64>().ok();
        if let Some(rest) = line.strip_prefix('#') {
            let words: Vec<&str> = rest.split_whitespace().collect();
            let after = |name: &str| words.iter().skip_while(|word| **word != name).nth(1);
            let set = |field: &mut u64, text: Option<&str>| *field = text.and_then(number).unwrap_or(*field);
            set(&mut self.outcome.executions, words.first().copied());
            set(&mut self.outcome.coverage, after("cov:").copied());
            set(&mut self.outcome.features, after("ft:").copied());
            set(&mut self.outcome.corpus, after("corp:").and_then(|text| text.split('/').next()));
        } else if let Some(count) = line.strip_prefix("stat::number_of_executed_units:").and_then(number) {
            self.outcome.executions = count;
        } else if line.starts_with("INFO: Loaded ") && line.contains("inline 8-bit counters") {
            self.instrumented = true;
        } else if let Some((_, path)) =
            line.split_once("Test unit written to ").filter(|(_, path)| !path.contains(SLOW))
        {
            self.input = Some(PathBuf::from(path.trim()));
        } else if let Some((_, error)) = line.split_once("ERROR: libFuzzer: ") {
            self.error = Some(error.to_owned());
        } else if line.contains(" panicked at ") || self.panic.len() == 1 {
            // The message is on the line after the location.
            self.panic.push(line.trim().to_owned());
        }
    }

    /// Writes the output next to the input.
    fn finding(&self, tail: &str) -> anyhow::Result<Option<Finding>> {
        let Some(input) = &self.input else { return Ok(None) };
        let output = input.with_extension("txt");
        let reason = match (self.panic.is_empty(), &self.error) {
            (false, _) => self.panic.join(" "),
            (true, Some(error)) => error.clone(),
            (true, None) => "libFuzzer ended without a reason".to_owned(),
        };
        let target = input.file_name().unwrap_or_default().to_string_lossy();
        let text = format!("{target}\n{reason}\n\n{tail}\n");
        fs::write(&output, text).with_context(|| format!("failed to write {}", output.display()))?;
        Ok(Some(Finding { reason, input: input.clone(), output }))
    }
}

impl Outcome {
    #[expect(clippy::cast_precision_loss, reason = "a count of executions in a table")]
    pub(super) fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.executions as f64 / self.seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Log {
        let mut log = Log::default();
        text.lines().for_each(|line| log.read(line));
        log
    }

    const BEGIN: &str = "\
INFO: Running with entropic power schedule (0xFF, 100).
INFO: Loaded 1 modules   (151209 inline 8-bit counters): 151209 [0x5581, 0x5582),
#3\tINITED cov: 57 ft: 81 corp: 3/120b exec/s: 0 rss: 37Mb
#2048\tpulse  cov: 60 ft: 90 corp: 5/1b lim: 120 exec/s: 1024 rss: 40Mb
";

    #[test]
    fn interrupted_run_keeps_its_last_progress() {
        let log = read(BEGIN);
        assert!(log.instrumented);
        let Outcome { executions, coverage, features, corpus, .. } = log.outcome;
        assert_eq!((executions, coverage, features, corpus), (2048, 60, 90, 5));
        assert_eq!(read(BEGIN).finding("").unwrap(), None);
    }

    #[test]
    fn final_count_replaces_the_last_progress() {
        let end = "#5000\tDONE   cov: 61 ft: 91 corp: 6/1b\nDone 5001 runs in 2 second(s)\nstat::number_of_executed_units: 5001\n";
        assert_eq!(read(&format!("{BEGIN}{end}")).outcome.executions, 5001);
    }

    #[test]
    fn timeout_counts_only_if_it_happens_again() {
        let repeated = |program: &str| is_slow(Path::new(program), "t", Path::new("input")).unwrap();
        assert!(!repeated("/bin/true") && repeated("/bin/false"));
    }

    #[test]
    fn slow_input_is_not_a_finding() {
        let mut log = Log::default();
        log.read("artifact_prefix='/f/a-'; Test unit written to /f/a-slow-unit-0a");
        assert_eq!(log.finding("").unwrap(), None);
        log.read("artifact_prefix='/f/a-'; Test unit written to /f/a-timeout-0b");
        assert_eq!(log.input, Some(PathBuf::from("/f/a-timeout-0b")));
    }

    #[test]
    fn crash_is_reported_with_its_panic_and_its_output_is_next_to_the_input() {
        let dir = std::env::temp_dir().join(format!("archproof-fuzz-engine-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let input = dir.join("fetch-lock-crash-0a");
        let end = format!(
            "thread '<unnamed>' (7) panicked at src/a.rs:1:2:\nindex out of bounds\nstack backtrace:\n\
             ==7== ERROR: libFuzzer: deadly signal\nartifact_prefix='x'; Test unit written to {}\n",
            input.display()
        );
        let found = read(&format!("{BEGIN}{end}")).finding("the tail").unwrap().unwrap();
        assert_eq!(found.reason, "thread '<unnamed>' (7) panicked at src/a.rs:1:2: index out of bounds");
        assert!(fs::read_to_string(&found.output).unwrap().ends_with("the tail\n"));
        assert_eq!(repeat("a", Path::new("b")), "cargo xtask fuzz a --input b");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn timeout_and_memory_limit_are_reported_in_the_words_of_libfuzzer() {
        let log = read("==7== ERROR: libFuzzer: timeout after 20 seconds\nTest unit written to ./timeout-1\n");
        assert_eq!(log.error.as_deref(), Some("timeout after 20 seconds"));
        assert_eq!(log.input.as_deref(), Some(Path::new("./timeout-1")));
        assert!(!log.instrumented);
    }
}
