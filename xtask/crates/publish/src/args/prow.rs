//! Options of `report prow`, and the options that it shares with `report gcs`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report prow RUN --out bucket
  cargo xtask report prow RUN --out bucket --job ci-etcd-ARCH --repo etcd-io/etcd --commit HASH")]
pub(crate) struct ProwOptions {
    /// Run folder, or its name below reports/; a folder of several architectures includes all of them
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) job: JobOptions,
    /// Output folder, with the layout of the bucket; builds of other runs in it stay
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// The job that a run belongs to.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct JobOptions {
    /// Name of the job [default: archproof-ARCH-PROVIDER, for a shard archproof-ARCH-PROVIDER-1of2]
    #[arg(long, value_name = "NAME", value_parser = job_name)]
    pub(crate) job: Option<String>,
    /// The repository whose commit was tested
    #[arg(long, value_name = "ORG/NAME", value_parser = repository)]
    pub(crate) repo: Option<String>,
    /// Full hash of that commit
    #[arg(long, value_name = "HASH", value_parser = commit)]
    pub(crate) commit: Option<String>,
    /// Tested pull request; the build then counts as a presubmit
    #[arg(long, value_name = "N", requires = "repo")]
    pub(crate) pull: Option<u64>,
    /// Bucket that pointers to builds of pull requests name
    #[arg(long, value_name = "gs://BUCKET[/PREFIX]", value_parser = bucket)]
    pub(crate) bucket: Option<String>,
}

fn job_name(text: &str) -> Result<String, String> {
    let good = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if good && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.len() <= 63 {
        Ok(text.into())
    } else {
        Err("a name has at most 63 letters, digits, `-`, `_` and `.`, and begins with a letter or digit".into())
    }
}

fn repository(text: &str) -> Result<String, String> {
    let good = |part: &str| {
        part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) && part.chars().any(|c| c != '.')
    };
    match text.split_once('/') {
        Some((org, name)) if good(org) && good(name) => Ok(text.into()),
        _ => Err("expected ORG/NAME".into()),
    }
}

fn commit(text: &str) -> Result<String, String> {
    let good = text.len() == 40 && text.chars().all(|c| c.is_ascii_hexdigit());
    if good { Ok(text.to_lowercase()) } else { Err("expected a commit of 40 hexadecimal digits".into()) }
}

/// Strips the scheme and trailing slashes.
fn bucket(text: &str) -> Result<String, String> {
    let path = text.strip_prefix("gs://").unwrap_or(text).trim_end_matches('/');
    let good = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    if path.split('/').all(good) { Ok(path.into()) } else { Err("expected gs://BUCKET or gs://BUCKET/PREFIX".into()) }
}
