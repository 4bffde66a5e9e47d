//! The fuzzer's program. With `--cfg fuzzing`, libFuzzer runs one target; without it, the program replays inputs.
//!
//! `cargo xtask fuzz` builds and starts both forms.
#![cfg_attr(fuzzing, no_main)]

/// The environment variable with the name of the target, because libFuzzer owns the command line.
#[cfg(fuzzing)]
const VARIABLE: &str = "ARCHPROOF_FUZZ_TARGET";

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| selected()(data));

/// Reads the variable only at the first input, because this function runs for every input.
#[cfg(fuzzing)]
fn selected() -> fn(&[u8]) {
    static SELECTED: std::sync::OnceLock<fn(&[u8])> = std::sync::OnceLock::new();
    *SELECTED.get_or_init(|| match fuzz::find(&std::env::var(VARIABLE).unwrap_or_default()) {
        Ok((_, target)) => target,
        Err(error) => {
            replay::say(&format!("{VARIABLE}: {error}"));
            std::process::exit(2);
        }
    })
}

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    replay::main()
}

mod replay {
    //! Replays inputs, and prints messages in both forms of the program.

    use std::io::Write;

    pub(super) fn say(line: &str) {
        // A closed stderr must not hide the exit code.
        let _ = writeln!(std::io::stderr(), "{line}");
    }

    #[cfg(not(fuzzing))]
    pub(super) fn main() -> std::process::ExitCode {
        use std::process::ExitCode;
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let replayed = match arguments.as_slice() {
            [target, paths @ ..] if !paths.is_empty() => all(target, paths),
            _ => Err("usage: fuzz TARGET PATH...".to_owned()),
        };
        match replayed {
            Ok(count) => {
                say(&format!("{}: {count} inputs replayed", arguments[0]));
                ExitCode::SUCCESS
            }
            Err(error) => {
                say(&error);
                ExitCode::from(2)
            }
        }
    }

    /// Prints the name of each file before it runs, so that a panic, a hang or a crash shows its input.
    #[cfg(not(fuzzing))]
    fn all(target: &str, paths: &[String]) -> Result<usize, String> {
        let (_, run) = fuzz::find(target)?;
        let mut count = 0;
        for path in paths {
            let failed = |error| format!("failed to read {path}: {error}");
            for file in fuzz::files(path.as_ref()).map_err(failed)? {
                let data = std::fs::read(&file).map_err(failed)?;
                say(&format!("replaying {}", file.display()));
                run(&data);
                count += 1;
            }
        }
        Ok(count)
    }
}
