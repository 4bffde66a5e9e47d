//! Options of `test`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::SelectionOptions;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
The command builds, starts and stops nothing. A run creates namespaces and custom resources named ap-*-MARK, labelled
archproof.example/run=MARK, and removes them at the end, also after a failure and Ctrl-C. Checks that need more are
skipped, and the report says what they need. --store-endpoint enables the checks that read the store, and the judges of
the whole run. The store is only read; of keys outside the run, only digests are recorded. If the endpoint speaks only
HTTP/1.1, checks that compare it with HTTP/2 are skipped, and the others run over HTTP/1.1.

Examples:
  cargo xtask test --kubeconfig ~/.kube/config --dry-run
  cargo xtask test --kubeconfig ~/.kube/config --context lab --arch ARCH
  cargo xtask test --kubeconfig admin.conf --store-endpoint https://10.0.0.5:2379 \\
      --store-ca etcd/ca.crt --store-cert etcd/client.crt --store-key etcd/client.key
  cargo xtask test --kubeconfig admin.conf --check cc. --seed 7
  cargo xtask test --kubeconfig admin.conf --clean-up all    the leftovers of killed runs; breaks runs in progress

Exit codes: 0 all as expected, 2 usage, 4 nothing ran, 100 conformance failures, 102 the cluster cannot be used or is
not of the architecture --arch, or the run left something behind, 130 interrupted.")]
pub(crate) struct TestOptions {
    /// Kubeconfig of the cluster, with a certificate or a token; exec plugins are not supported
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Expected architecture; fail if the cluster has another one
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) selection: SelectionOptions,
    /// Seed of all random choices [default: a new one, which is printed]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Number of checks to run at the same time
    #[arg(long, value_name = "N", default_value = "4")]
    pub(crate) parallel_checks: NonZeroUsize,
    /// Factor for all deadlines [default: measured]
    #[arg(long, value_name = "X", value_parser = factor)]
    pub(crate) factor: Option<f64>,
    /// Print which checks would run and which are skipped, without contacting the cluster
    #[arg(long, conflicts_with_all = ["json", "clean_up"])]
    pub(crate) dry_run: bool,
    /// Remove the leftovers of a killed run, by its mark, or of all runs, including those in progress
    #[arg(long, value_name = "MARK|all", conflicts_with_all = ["arch", "checks", "level", "suites", "profiles", "seed"])]
    pub(crate) clean_up: Option<String>,
    /// Print the run's record (run.json) on stdout
    #[arg(long, conflicts_with = "clean_up")]
    pub(crate) json: bool,
    /// Show every pass
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Show only problems
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
}

/// The store under the apiserver.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct StoreOptions {
    /// Address of the etcd under the apiserver, with a client certificate for it
    #[arg(long, value_name = "URL", requires_all = ["store_ca", "store_cert", "store_key"], value_parser = https)]
    pub(crate) store_endpoint: Option<String>,
    /// The CA of etcd's certificate
    #[arg(long, value_name = "FILE", requires = "store_endpoint")]
    pub(crate) store_ca: Option<PathBuf>,
    /// A client certificate that etcd accepts
    #[arg(long, value_name = "FILE", requires = "store_endpoint")]
    pub(crate) store_cert: Option<PathBuf>,
    /// Key of the client certificate
    #[arg(long, value_name = "FILE", requires = "store_endpoint")]
    pub(crate) store_key: Option<PathBuf>,
    /// Value of the apiserver's flag --etcd-prefix
    #[arg(long, value_name = "PREFIX", default_value = "/registry", value_parser = prefix)]
    pub(crate) prefix: String,
}

fn https(text: &str) -> Result<String, String> {
    match text.trim_end_matches('/').strip_prefix("https://") {
        Some(rest) if !rest.is_empty() && !rest.contains('/') => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err("https://HOST:PORT".into()),
    }
}

/// Normalizes the prefix like the apiserver: with a leading slash, without a trailing one.
fn prefix(text: &str) -> Result<String, String> {
    let middle = text.trim_matches('/');
    if middle.is_empty() {
        Err("expected the part of all keys before the resource, for example /registry".into())
    } else {
        Ok(format!("/{middle}"))
    }
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (1.0..=1000.0).contains(&factor) => Ok(factor),
        _ => Err("expected a number from 1 to 1000".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        options: TestOptions,
    }

    fn parse(line: &str) -> Result<TestOptions, String> {
        let words = ["x"].into_iter().chain(line.split_whitespace());
        Alone::try_parse_from(words).map(|alone| alone.options).map_err(|error| error.to_string())
    }

    #[test]
    fn store_options_are_complete_or_absent() {
        let whole =
            "--kubeconfig k --store-endpoint https://h:1/ --store-ca a --store-cert b --store-key c --prefix x/y/";
        let options = parse(whole).unwrap();
        assert_eq!(options.store.store_endpoint.as_deref(), Some("https://h:1"));
        assert_eq!(options.store.prefix, "/x/y");
        assert_eq!(parse("--kubeconfig k").unwrap().store.prefix, "/registry");
        for (line, word) in [
            ("", "--kubeconfig"),
            ("--kubeconfig k --store-endpoint https://h:1", "--store-ca"),
            ("--kubeconfig k --store-ca a", "--store-endpoint"),
            (
                "--kubeconfig k --store-endpoint http://h:1 --store-ca a --store-cert b --store-key c",
                "https://HOST:PORT",
            ),
            ("--kubeconfig k --prefix /", "/registry"),
            ("--kubeconfig k --factor 0", "from 1 to 1000"),
            ("--kubeconfig k --dry-run --json", "cannot be used with"),
            ("--kubeconfig k --dry-run --clean-up all", "cannot be used with"),
            ("--kubeconfig k --clean-up all --arch riscv64", "cannot be used with"),
            ("--kubeconfig k --clean-up all --check cc.", "cannot be used with"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
