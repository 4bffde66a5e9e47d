//! `openpgp KEYS FILE`: prints the part of a clear-signed file that one of the keys has signed.
//!
//! The harness starts this program when it needs a signed index. It is a separate program because OpenPGP accounts for
//! a quarter of all crates, and a run whose packages are in the lock needs no signature.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use openpgp::Keys;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let printed = match arguments.as_slice() {
        [keys, file] => signed_text(Path::new(keys), Path::new(file)).and_then(|text| print(&text)),
        _ => Err(anyhow::anyhow!("usage: openpgp KEYS FILE")),
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If stderr is closed, the exit code still reports the failure.
            let _ = writeln!(std::io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn signed_text(keys: &Path, file: &Path) -> anyhow::Result<String> {
    let keys = Keys::load(keys)?;
    let message = std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
    keys.signed_text(&message)
}

/// The caller uses the text only with exit code 0: a truncated text must not pass as complete.
fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("failed to write the signed text")
}
