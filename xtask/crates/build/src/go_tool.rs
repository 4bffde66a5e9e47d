//! `go` for the work on pins: questions to the module proxy, `go get` and `go mod tidy` in a module folder.

use std::path::{Path, PathBuf};

use sys::progress::Phase;

use crate::go::{Env, Toolchain};

/// The `go` command with the settings of a build, without a target.
pub struct GoTool {
    toolchain: Toolchain,
    env: Env,
}

impl GoTool {
    /// The `go` on PATH, if it is new enough for this go.mod.
    ///
    /// # Errors
    /// The file cannot be read, or Go is missing or too old.
    pub fn find(go_mod: &Path) -> anyhow::Result<GoTool> {
        Ok(GoTool::with(Toolchain::find(go_mod, None)?))
    }

    /// The `go` on PATH, of any version: for questions to a module proxy.
    ///
    /// # Errors
    /// Go is missing, or does not answer.
    pub fn any() -> anyhow::Result<GoTool> {
        Ok(GoTool::with(Toolchain::any()?))
    }

    fn with(toolchain: Toolchain) -> GoTool {
        // A value from `go env -w` counts if the variable is empty, so GOFLAGS has a flag without effect on modules. A
        // go.work in a parent folder would add other modules. The packages of all targets are loaded for Linux.
        let settings = [("GOFLAGS", "-buildvcs=false"), ("GOWORK", "off"), ("GOOS", "linux"), ("CGO_ENABLED", "0")];
        let env = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        GoTool { toolchain, env }
    }

    /// Runs a `go` command in `dir` for at most 30 minutes, and returns its standard output. `phase` shows its progress.
    ///
    /// # Errors
    /// The command fails, with the end of its output; the time limit; an interrupt.
    pub fn run(&self, dir: &Path, args: &[&str], phase: &Phase) -> anyhow::Result<String> {
        self.toolchain.fetch(dir, &self.env, args, phase)
    }

    /// The folder with the downloaded modules.
    pub fn module_cache(&self) -> PathBuf {
        self.toolchain.module_cache.clone()
    }
}
