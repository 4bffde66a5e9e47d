//! Options of `inspect`, which shows a live store or a file of one.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::cluster::cluster_name;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask inspect                                   every key with its revisions
  cargo xtask inspect /registry/configmaps/default/     the keys below a prefix
  cargo xtask inspect configmaps/default/a              one value, decoded; the profile's prefix is added
  cargo xtask inspect configmaps/default/a --hex        with the bytes next to the decoded fields
  cargo xtask inspect --profile encrypted secrets/      another control plane of the same cluster
  cargo xtask inspect --file db /registry/pods/         etcd's database file or a snapshot, without a server
  cargo xtask inspect --file value                      one stored value
  cargo xtask inspect --file db /registry/secrets/default/a --encryption-config encryption.yaml
                                                        a value that is encrypted, as an object
  cargo xtask inspect --file value --encryption-config encryption.yaml --key /registry/secrets/default/a
                                                        the same from a file with only the value

Values are decoded with the types of the release that the cluster runs, or of --kubernetes. They come from its Go modules,
which are downloaded once; without them, only metadata has names.")]
pub(crate) struct InspectOptions {
    /// Key to decode, or prefix whose keys to list; without a leading slash, it is relative to the profile's prefix
    #[arg(value_name = "KEY|PREFIX")]
    pub(crate) key: Option<String>,
    /// Name given to `up`, or of a run that `ci --keep` left running
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = cluster_name)]
    pub(crate) name: String,
    /// Profile of the control plane [default: the only one, or `default`]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Read this file instead of a cluster: a database of etcd (`member/snap/db`), a snapshot, or one stored value
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "profile"])]
    pub(crate) file: Option<PathBuf>,
    /// Decrypt values of --file with the keys of this EncryptionConfiguration, and with those of the project's KMS plugin in
    /// `kms.keys` in the same folder [default: those of the run in whose private folder the file is]
    #[arg(long, value_name = "FILE", requires = "file")]
    pub(crate) encryption_config: Option<PathBuf>,
    /// Whole key under which the store has the one value of --file; AES-GCM and KMS authenticate it
    #[arg(long = "key", value_name = "KEY", requires = "file")]
    pub(crate) stored_at: Option<String>,
    /// Decode values with the types of this release, pinned in targets/components.yaml [default: that of the cluster, or
    /// the default release]
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes: Option<String>,
    /// Read the store at this revision
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) revision: i64,
    /// Show the bytes next to each field
    #[arg(long, conflicts_with = "json")]
    pub(crate) hex: bool,
    /// Show the fields without the types of the release, by their numbers
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
