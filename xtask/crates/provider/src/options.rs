//! The options of a provider on the command line.

use clap::{Args as ClapArgs, ValueEnum};
use cli::{MachineOptions, QemuArg};

use crate::Provider;
use crate::kind::Kind;
use crate::process::Process;
use crate::qemu::Qemu;

/// A provider on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProviderArg {
    /// etcd and kube-apiserver as child processes; foreign architectures through qemu-user
    Process,
    /// A system VM of the architecture; with KVM if it works, otherwise emulated
    Qemu,
    /// Kind clusters in containers, for this machine's architecture: one per control plane, and one with a full node
    Kind,
}

impl ProviderArg {
    /// The name on the command line and in the record.
    pub fn name(self) -> &'static str {
        match self {
            ProviderArg::Process => "process",
            ProviderArg::Qemu => "qemu",
            ProviderArg::Kind => "kind",
        }
    }

    pub fn provider(self) -> &'static dyn Provider {
        match self {
            ProviderArg::Process => &Process,
            ProviderArg::Qemu => &Qemu,
            ProviderArg::Kind => &Kind,
        }
    }
}

/// How to run the components.
#[derive(Clone, Debug, ClapArgs)]
pub struct ProviderOptions {
    /// How to run the components [default: process for this machine's architecture, qemu for others]
    #[arg(long, value_enum, value_name = "PROVIDER")]
    pub provider: Option<ProviderArg>,
    /// What to start
    #[arg(long, value_enum, value_name = "CLUSTER", default_value = "planes")]
    pub cluster: ClusterArg,
    /// Node image for Kind; its Kubernetes is tested [default: an image built from the components]
    #[arg(long, value_name = "REF")]
    pub image: Option<String>,
    /// Boot the VM from power-on, and create no memory snapshot
    #[arg(long)]
    pub cold: bool,
    #[command(flatten)]
    pub machine: MachineOptions,
}

/// What to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClusterArg {
    /// Control planes alone: etcd and kube-apiserver
    Planes,
    /// Control planes, and a node with kubelet and containers
    Node,
}

impl ProviderOptions {
    /// Whether the cluster has a node.
    pub fn has_node(&self) -> bool {
        self.cluster == ClusterArg::Node || self.provider == Some(ProviderArg::Kind)
    }

    /// The options as command-line arguments.
    pub fn words(&self) -> Vec<String> {
        let MachineOptions { qemu, locked, debian_mirror } = &self.machine;
        let mut words = Vec::new();
        let mut add =
            |option: &str, value: Option<&str>| words.extend([option].into_iter().chain(value).map(str::to_owned));
        if let Some(provider) = self.provider {
            add("--provider", Some(provider.name()));
        }
        if self.cluster == ClusterArg::Node {
            add("--cluster", Some("node"));
        }
        if let Some(image) = &self.image {
            add("--image", Some(image));
        }
        if self.cold {
            add("--cold", None);
        }
        if *qemu == QemuArg::System {
            add("--qemu", Some("system"));
        }
        if *locked {
            add("--locked", None);
        }
        if let Some(mirror) = debian_mirror {
            add("--debian-mirror", Some(mirror));
        }
        words
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        options: ProviderOptions,
    }

    #[derive(Parser)]
    struct Sources {
        #[command(flatten)]
        sources: cli::SourceOptions,
    }

    pub(crate) fn sources(line: &str) -> cli::SourceOptions {
        Sources::try_parse_from(["x"].into_iter().chain(line.split_whitespace())).unwrap().sources
    }

    pub(crate) fn options(line: &str) -> ProviderOptions {
        Alone::try_parse_from(["x"].into_iter().chain(line.split_whitespace())).unwrap().options
    }

    #[test]
    fn words_are_the_arguments_as_given() {
        for line in [
            "",
            "--provider process",
            "--provider kind --image r/i:t@sha256:0",
            "--provider qemu --cluster node --cold --qemu system --locked --debian-mirror http://h/d",
        ] {
            assert_eq!(options(line).words().join(" "), line);
        }
    }
}
