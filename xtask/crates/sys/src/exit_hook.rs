//! Cleanup that runs even when this process ends without doing it: for things that outlive the process and are not its
//! children, such as a container.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A shell script that runs when this process ends in any way, unless it is cancelled before.
#[derive(Debug)]
pub struct ExitHook {
    shell: Child,
}

const CANCELLED: &str = "cancelled";

impl ExitHook {
    /// # Errors
    /// The shell cannot be started.
    #[expect(clippy::disallowed_methods, reason = "it must not end with this process, as every other child does")]
    pub fn install(script: &str) -> io::Result<ExitHook> {
        // When this process ends, `read` sees the end of its input.
        let whole = format!("trap '' HUP INT TERM; read word; [ \"$word\" = {CANCELLED} ] || {{ {script}; }}");
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(whole).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(ExitHook { shell: command.process_group(0).spawn()? })
    }

    /// Cancels the script.
    pub fn cancel(mut self) {
        if let Some(mut input) = self.shell.stdin.take() {
            // If the shell no longer reads, it already runs the script, which is safe to run again.
            let _ = writeln!(input, "{CANCELLED}");
        }
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    #[test]
    fn script_runs_when_the_process_ends_and_not_when_revoked() {
        let scratch = Scratch::temporary("will").unwrap();
        let file = scratch.path().join("file");
        ExitHook::install(&format!("touch {}", file.display())).unwrap().cancel();
        assert!(!file.exists());
        // The same happens when the process ends: the last writer of the pipe closes it.
        let mut exit_hook = ExitHook::install(&format!("touch {}", file.display())).unwrap();
        drop(exit_hook.shell.stdin.take());
        exit_hook.shell.wait().unwrap();
        assert!(file.exists());
    }
}
