//! `cargo xtask images`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

use crate::Format;
use cli::{MachineOptions, SourceOptions, size};

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask images list --arch all
  cargo xtask images build --arch all
  cargo xtask images build --arch ARCH --image pause,coredns --format docker --output DIR
  cargo xtask images node && kind create cluster --image archproof/node:TAG
  cargo xtask images audit DIR/docker/ARCH/pause.tar
  docker save IMAGE | zstd > image.tar.zst && cargo xtask images audit image.tar.zst --json")]
pub struct ImagesOptions {
    #[command(subcommand)]
    pub(crate) command: ImagesCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ImagesCommand {
    /// Build OCI images of the components, FROM scratch; the same binaries always give the same image
    Build(ImagesBuildOptions),
    /// Build a node image for Kind: Debian, systemd, containerd, the components and the images of the control plane
    Node(ImagesNodeOptions),
    /// List the images, with their names and components
    List(ImageSelection),
    /// Find the ELF files in an image archive that the image's architecture cannot run
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

The OCI layout is one folder for all images. An image for several architectures is an index of one manifest for each.")]
pub(crate) struct ImagesBuildOptions {
    #[command(flatten)]
    pub(crate) selection: ImageSelection,
    /// An OCI layout, docker archives, or both
    #[arg(long = "format", value_enum, value_name = "FORMAT", value_delimiter = ',', default_value = "oci")]
    pub(crate) formats: Vec<Format>,
    /// Output folder [default: images/ in the cache]
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

FILE needs `networking: {kubeProxyMode: none}`, because kube-proxy is a service of the node, and exactly one node,
because the Pod network covers one node. The command needs no registry and no root; --load needs a container engine.")]
pub(crate) struct ImagesNodeOptions {
    /// Architecture of the image [default: this machine's]
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: Option<String>,
    #[command(flatten)]
    pub(crate) sources: SourceOptions,
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    /// Output file, a docker archive [default: images/docker/ARCH/node.tar in the cache]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Load the image into the container engine with `docker load`
    #[arg(long)]
    pub(crate) load: bool,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask images audit image.tar
  cargo xtask images audit LAYOUT --json
  cargo xtask images audit image.tar.gz --allow '/usr/lib/firmware/*'

The audit covers every image and architecture in the archive. It ignores files that a later layer hides or replaces.
Exit codes: 0 no findings, 4 the archive contains no ELF file, 100 findings.")]
pub(crate) struct ImagesAuditOptions {
    /// An OCI layout (folder or tar) or a docker archive; compressed by gzip or zstd, or not
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Path of an ELF file that is meant for another machine, or a prefix of such paths and `*`; may be repeated
    #[arg(long = "allow", value_name = "PATH")]
    pub(crate) allowed: Vec<String>,
    /// Limit for the total unpacked size of the layers: 500M, 10G; it also limits the number of entries
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64G")]
    pub(crate) max_size: u64,
    /// Print the findings as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
