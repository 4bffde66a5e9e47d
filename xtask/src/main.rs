//! `cargo xtask`: parses the command line, hands it to the command, turns the result into an exit code.
//!
//! Commands are in `commands/`, one file each, or in the crate of their area; the stages in order are in `pipeline.rs`.

mod args;
mod build_lock;
mod commands;
mod expectations;
mod pipeline;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write;
use std::panic::{PanicHookInfo, catch_unwind};
use std::process::ExitCode;

use cli::{Failure, Paths, github, paths};
use model::Exit;

use args::{Args, Command};

fn main() -> ExitCode {
    let args = match args::parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    std::panic::set_hook(Box::new(tell_panic));
    github::begin(&args.places.github);
    // Rust's own exit code for a panic is 101, which here means that a build failed.
    let ended = catch_unwind(|| start(args)).unwrap_or_else(|_| Ok(Exit::Internal.code()));
    let tell = |Failure { exit, error }| {
        sys::progress::say(&format!("error: {error:#}"));
        exit.code()
    };
    let code = after_output(ended.unwrap_or_else(tell), cli::printed().err().map(tell));
    github::end();
    ExitCode::from(code)
}

/// The exit code of a command that ended with `code`; `lost` is that of lost output. A disk that was full when the command
/// printed its result must not turn a failure into one that a script repeats.
fn after_output(code: u8, lost: Option<u8>) -> u8 {
    if code == Exit::Ok.code() { lost.unwrap_or(code) } else { code }
}

/// Prints the panic as one message above the live line; any thread may call it.
fn tell_panic(panic: &PanicHookInfo<'_>) {
    let backtrace = Backtrace::capture();
    let trace = if backtrace.status() == BacktraceStatus::Captured { format!("\n{backtrace}") } else { String::new() };
    sys::progress::say(&format!("a bug in the harness: {panic}{trace}"));
}

/// Returns the exit code. `shell` passes on the exit code of the command in the guest.
fn start(args: Args) -> Result<u8, Failure> {
    // A supervisor handles signals itself.
    if !matches!(args.command, Command::Supervise(_)) {
        sys::interrupt::install()?;
    }
    tls::install();
    let paths = || Paths::new(&args.places);
    let step = github::Github::of(&args.places.github);
    let exit = match args.command {
        Command::Shell(options) => return commands::shell::run(&paths()?, &options),
        Command::Runner(options) => return runner::run(&args.places, &options, doctor::diagnose_offline),
        Command::Ci(options) => commands::ci::run(&paths()?, &options),
        Command::Audit(options) => commands::audit::run(&paths()?, &options),
        Command::Build(options) => commands::build::run(&paths()?, &options),
        Command::Images(options) => images::run(&paths()?, &options, boot::kind::load),
        Command::Dist(options) => dist::run(&paths()?, &options),
        Command::Fetch(options) => commands::fetch::run(&paths()?, &options),
        Command::Doctor(options) => doctor::run(&paths()?, &options),
        Command::Cache(options) => commands::cache::run(&paths()?, &options),
        Command::Up(options) => commands::up::run(&paths()?, &options),
        Command::Down(options) => commands::up::down(&paths()?, &options),
        Command::Kubectl(options) => commands::kubectl::run(&paths()?, &options),
        Command::Logs(options) => commands::up::logs(&paths()?, &options),
        Command::List(options) => commands::checks::list(paths, &options),
        Command::Explain(options) => commands::checks::explain(&options),
        Command::Differential(options) => differential::run(&paths()?, &options),
        Command::Bisect(options) => bisect::run(&paths()?, &options),
        Command::Bench(options) => bench::run(&paths()?, &options),
        Command::Fuzz(options) => fuzzer::run(&paths()?, &options),
        Command::Targets(options) => commands::targets::run(&paths::targets(&args.places), &options),
        Command::Matrix(options) => workflows::commands::matrix::run(
            &paths::targets(&args.places),
            &paths::root(&args.places),
            step.as_ref(),
            &options,
        ),
        Command::Workflows(options) => {
            return workflows::commands::run(
                &paths::targets(&args.places),
                &paths::root(&args.places),
                step.as_ref(),
                &options,
                args::accepts,
            );
        }
        Command::Pins(options) => return pins::run(&paths()?, &paths::root(&args.places), &options),
        Command::Selftest(options) => commands::selftest::run(&paths()?, &options),
        Command::Compare(options) => publish::compare::run(&paths()?, &options),
        Command::Inspect(options) => commands::inspect::run(&paths()?, &options),
        Command::Report(options) => return publish::run(&paths()?, &options),
        Command::Test(options) => commands::test::run(&paths()?, &options),
        Command::HostForward(options) => commands::host_forward::run(&options),
        Command::Supervise(options) => return commands::supervise::run(&options),
        Command::Rejudge(options) => commands::rejudge::run(&paths()?, &options),
    }?;
    Ok(exit.code())
}

/// `--help` goes to stdout and is a success; everything else is a usage error.
fn usage(error: &clap::Error) -> ExitCode {
    let text = sys::origin::typed(&error.render().to_string()).into_owned();
    if error.use_stderr() {
        // A closed stderr cannot be reported anywhere.
        let _ = std::io::stderr().write_all(text.as_bytes());
    } else {
        cli::print(&text);
    }
    let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
    ExitCode::from(exit.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_output_does_not_hide_a_failure() {
        let [ok, lost, failed] = [Exit::Ok, Exit::Infrastructure, Exit::Conformance].map(Exit::code);
        assert_eq!(after_output(ok, None), ok);
        assert_eq!(after_output(ok, Some(lost)), lost);
        assert_eq!(after_output(failed, Some(lost)), failed);
    }
}
