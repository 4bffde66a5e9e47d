//! `cargo xtask images`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use super::{MachineOptions, SourceOptions, size};

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask images list --arch all
  cargo xtask images build --arch all
  cargo xtask images build --arch ARCH --image pause,coredns --format docker --output DIR
  cargo xtask images node && kind create cluster --image archproof/node:TAG
  cargo xtask images audit DIR/docker/ARCH/pause.tar
  docker save IMAGE | zstd > image.tar.zst && cargo xtask images audit image.tar.zst --json")]
pub(crate) struct ImagesOptions {
    #[command(subcommand)]
    pub(crate) command: ImagesCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ImagesCommand {
    /// Make OCI images of the components, FROM scratch; the same binaries always make the same image
    Build(ImagesBuildOptions),
    /// Make the image of a node of Kind: Debian, systemd, containerd and the components, with the images of the control plane
    Node(ImagesNodeOptions),
    /// Tell which images there are, under which names, and of what
    List(ImagesListOptions),
    /// Find the ELF files in any image archive that its claimed architecture could not run
    Audit(ImagesAuditOptions),
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ImageSelection {
    /// Architectures, separated by commas, or `all` [default: this machine's]
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    pub(crate) arch: Vec<String>,
    /// Only these images, by the last part of their name; may be repeated
    #[arg(long = "image", value_name = "NAME", value_delimiter = ',')]
    pub(crate) images: Vec<String>,
    #[command(flatten)]
    pub(crate) sources: SourceOptions,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask images build --arch ARCH,ARCH
  cargo xtask images build --arch ARCH --format docker && docker load -i DIR/docker/ARCH/pause.tar
  cargo xtask images build --arch all --kubernetes 1.35 --output DIR && skopeo inspect oci:DIR/oci:REFERENCE

The OCI layout is one folder for all images; one of several architectures is an index of one manifest for each.")]
pub(crate) struct ImagesBuildOptions {
    #[command(flatten)]
    pub(crate) selection: ImageSelection,
    /// An OCI layout, docker archives, or both
    #[arg(long = "format", value_enum, value_name = "FORMAT", value_delimiter = ',', default_value = "oci")]
    pub(crate) formats: Vec<FormatArg>,
    /// Where they are written [default: images/ in the cache]
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Print what would be written, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask images node
  cargo xtask images node --load && kind create cluster --config FILE --image archproof/node:TAG
  cargo xtask images node --arch ARCH --kubernetes checkout:PATH --output node.tar
  cargo xtask images audit node.tar

In FILE: `networking: {kubeProxyMode: none}`, because kube-proxy is a service of the node; and one node, because its Pod
network is. No registry, no container engine (but for --load) and no root are needed.")]
pub(crate) struct ImagesNodeOptions {
    /// Its architecture [default: this machine's]
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: Option<String>,
    #[command(flatten)]
    pub(crate) sources: SourceOptions,
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    /// The docker archive [default: images/docker/ARCH/node.tar in the cache]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Let the container engine have it: `docker load`
    #[arg(long)]
    pub(crate) load: bool,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    /// One OCI layout for all: DIR/oci
    Oci,
    /// A file for each image and architecture, for `docker load` and `ctr images import`: DIR/docker/ARCH/NAME.tar
    Docker,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ImagesListOptions {
    #[command(flatten)]
    pub(crate) selection: ImageSelection,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask images audit image.tar
  cargo xtask images audit LAYOUT --json
  cargo xtask images audit image.tar.gz --allow '/usr/lib/firmware/*'

Every image of the archive is looked at, for every architecture. What a later layer hides or replaces is not judged.
Exit codes: 0 nothing was found, 4 there is no ELF file at all, 100 something was found.")]
pub(crate) struct ImagesAuditOptions {
    /// An OCI layout (folder or tar) or a docker archive; compressed by gzip or zstd, or not
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The path of an ELF file that is meant to be for another machine, or the beginning of such paths and `*`; may be
    /// repeated
    #[arg(long = "allow", value_name = "PATH")]
    pub(crate) allowed: Vec<String>,
    /// What the layers of the archive may unpack to, together: 500M, 10G. It limits the number of entries as well
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64G")]
    pub(crate) max_size: u64,
    /// Print what was found as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
