//! `cargo xtask dist`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Each archive has one folder with the program `archproof`, `targets/` and SHA256SUMS. It needs no installation:

  tar -xf archproof-0.1.0-ARCH.tar.gz && archproof-0.1.0-ARCH/archproof doctor

Examples:
  cargo xtask dist                        for this machine's architecture
  cargo xtask dist --host all --out dist
  cargo xtask dist --host ARCH --dry-run  the commands

Cross-building needs cargo-zigbuild and zig, which have the C compiler and the C library of every architecture
(`pip install --requirement workflows/zig.txt`), and Rust's standard library for it (`rustup target add`).")]
pub struct DistOptions {
    /// Architectures of the machines that will run the harness, separated by commas, or `all` [default: this machine's]
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    pub host: Vec<String>,
    /// Folder for the archives and their SHA256SUMS [default: dist in the reports folder]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Compile Rust's standard library from its sources, for a target that rustup does not have; needs `rustup component
    /// add rust-src`
    #[arg(long)]
    pub build_std: bool,
    /// Folder with the programs cargo-zigbuild and zig [default: PATH]
    #[arg(long, value_name = "DIR")]
    pub tools: Option<PathBuf>,
    /// Print the commands, and do nothing
    #[arg(long, conflicts_with = "json")]
    pub dry_run: bool,
    /// Print the archives as JSON on stdout
    #[arg(long)]
    pub json: bool,
}
