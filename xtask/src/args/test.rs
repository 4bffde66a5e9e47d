//! Options of `test`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::SelectionOptions;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Nothing is built, started or stopped. A run works in namespaces and custom resources with names of its own, ap-*-MARK,
labelled archproof.example/run=MARK, and removes them at the end, also after a failure and Ctrl-C. Checks that need more
are skipped, and the report says what they need. --store-endpoint lets those run that look into the store, and the judges
of the whole run; it is read only, and of what is not of the run only digests of keys are recorded. Where the endpoint
speaks HTTP/1.1 only, checks that compare it with HTTP/2 are skipped, and the others run over HTTP/1.1.

Examples:
  cargo xtask test --kubeconfig ~/.kube/config --dry-run
  cargo xtask test --kubeconfig ~/.kube/config --context lab --arch ARCH
  cargo xtask test --kubeconfig admin.conf --store-endpoint https://10.0.0.5:2379 \\
      --store-ca etcd/ca.crt --store-cert etcd/client.crt --store-key etcd/client.key
  cargo xtask test --kubeconfig admin.conf --check cc. --seed 7
  cargo xtask test --kubeconfig admin.conf --clean-up all    what killed runs have left; ends no living one gently

Exit codes: 0 all as expected, 2 usage, 4 nothing ran, 100 conformance failures, 102 the cluster cannot be used, is of
another architecture than --arch, or something was left behind, 130 interrupted.")]
pub(crate) struct TestOptions {
    /// Which cluster, and as whom; a certificate or a token in it, no exec plugin
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// A context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The architecture that the cluster must have; an error if it says something else
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) selection: SelectionOptions,
    /// Seed of all random choices [default: a new one, which is printed]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Checks at the same time
    #[arg(long, value_name = "N", default_value = "4")]
    pub(crate) parallel_checks: NonZeroUsize,
    /// What deadlines are multiplied by [default: measured]
    #[arg(long, value_name = "X", value_parser = factor)]
    pub(crate) factor: Option<f64>,
    /// Print what would run and what is skipped, and ask the cluster nothing
    #[arg(long, conflicts_with_all = ["json", "clean_up"])]
    pub(crate) dry_run: bool,
    /// Remove what a killed run has left, by its mark, or what all have: also what a living one works with
    #[arg(long, value_name = "MARK|all")]
    pub(crate) clean_up: Option<String>,
    /// Print the run's record (run.json) on stdout
    #[arg(long, conflicts_with = "clean_up")]
    pub(crate) json: bool,
    /// Show every pass
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Show only what went wrong
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
    /// Its key
    #[arg(long, value_name = "FILE", requires = "store_endpoint")]
    pub(crate) store_key: Option<PathBuf>,
    /// --etcd-prefix of the apiserver
    #[arg(long, value_name = "PREFIX", default_value = "/registry", value_parser = prefix)]
    pub(crate) prefix: String,
}

fn https(text: &str) -> Result<String, String> {
    match text.trim_end_matches('/').strip_prefix("https://") {
        Some(rest) if !rest.is_empty() && !rest.contains('/') => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err("https://HOST:PORT".into()),
    }
}

/// With a leading slash and without a trailing one, as the apiserver makes it.
fn prefix(text: &str) -> Result<String, String> {
    let middle = text.trim_matches('/');
    if middle.is_empty() {
        Err("the part of all keys before the resource, as /registry".into())
    } else {
        Ok(format!("/{middle}"))
    }
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (1.0..=1000.0).contains(&factor) => Ok(factor),
        _ => Err("a number from 1 to 1000".into()),
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
    fn a_store_is_given_whole_or_not_at_all() {
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
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
