//! Options of `report prow`, and what it shares with `report gcs`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report prow RUN --out bucket
  cargo xtask report prow RUN --out bucket --job ci-etcd-ARCH --repo etcd-io/etcd --commit HASH")]
pub(crate) struct ProwOptions {
    /// A run folder, or its name below reports/; a folder of several architectures stands for all of them
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) job: JobOptions,
    /// The folder that takes the place of the bucket; builds of other runs in it stay
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// Whose build a run is.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct JobOptions {
    /// Name of the job [default: archproof-ARCH-PROVIDER]
    #[arg(long, value_name = "NAME", value_parser = job_name)]
    pub(crate) job: Option<String>,
    /// The repository whose commit was tested
    #[arg(long, value_name = "ORG/NAME", value_parser = repository)]
    pub(crate) repo: Option<String>,
    /// That commit, in full
    #[arg(long, value_name = "HASH", value_parser = commit)]
    pub(crate) commit: Option<String>,
    /// The pull request that was tested: the build is then a presubmit's
    #[arg(long, value_name = "N", requires = "repo")]
    pub(crate) pull: Option<u64>,
    /// The bucket, as pointers to builds of pull requests name it
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
        _ => Err("wanted is ORG/NAME".into()),
    }
}

fn commit(text: &str) -> Result<String, String> {
    let good = text.len() == 40 && text.chars().all(|c| c.is_ascii_hexdigit());
    if good { Ok(text.to_lowercase()) } else { Err("a commit has 40 hexadecimal digits".into()) }
}

/// Without scheme and without a slash at the end.
fn bucket(text: &str) -> Result<String, String> {
    let path = text.strip_prefix("gs://").unwrap_or(text).trim_end_matches('/');
    let good = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    if path.split('/').all(good) { Ok(path.into()) } else { Err("wanted is gs://BUCKET or gs://BUCKET/PREFIX".into()) }
}
