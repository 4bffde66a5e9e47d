//! What is to be done when this process ends without having done it: for what outlives it and is no child of its own, such
//! as a container.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A line of shell that runs when this process is gone, however it went, unless the will was revoked.
#[derive(Debug)]
pub struct Will {
    shell: Child,
}

const REVOKED: &str = "revoked";

impl Will {
    /// # Errors
    /// There is no shell.
    pub fn make(script: &str) -> io::Result<Will> {
        // The end of this process is the end of its input.
        let whole = format!("trap '' HUP INT TERM; read word; [ \"$word\" = {REVOKED} ] || {{ {script}; }}");
        let mut command = shell();
        command.arg("-c").arg(whole).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Will { shell: command.process_group(0).spawn()? })
    }

    /// Nothing is to be done any more.
    pub fn revoke(mut self) {
        if let Some(mut input) = self.shell.stdin.take() {
            // Whoever does not read it any more is at work already, and does nothing twice that matters.
            let _ = writeln!(input, "{REVOKED}");
        }
        let _ = self.shell.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "it must not end with this process, as every other child does")]
fn shell() -> Command {
    Command::new("/bin/sh")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_dir::Scratch;

    #[test]
    fn it_is_executed_when_nobody_holds_it_any_more_and_not_when_it_was_revoked() {
        let scratch = Scratch::temporary("will").unwrap();
        let file = scratch.path().join("file");
        Will::make(&format!("touch {}", file.display())).unwrap().revoke();
        assert!(!file.exists());
        // What the end of the process does: the last holder of the other end goes.
        let mut will = Will::make(&format!("touch {}", file.display())).unwrap();
        drop(will.shell.stdin.take());
        will.shell.wait().unwrap();
        assert!(file.exists());
    }
}
