//! Options that say how components are run, and what system VMs are made from.

use clap::{Args as ClapArgs, ValueEnum};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProviderArg {
    /// etcd and kube-apiserver as child processes; foreign architectures through qemu-user
    Process,
    /// A system VM of the architecture; KVM where that works, else emulated
    Qemu,
    /// Clusters of Kind in containers, of this machine's architecture; a control plane each, and one with a whole node
    Kind,
}

/// How the components are run.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ProviderOptions {
    /// How the components are run [default: process for this machine's architecture, qemu for others]
    #[arg(long, value_enum, value_name = "PROVIDER")]
    pub(crate) provider: Option<ProviderArg>,
    /// What is started
    #[arg(long, value_enum, value_name = "CLUSTER", default_value = "planes")]
    pub(crate) cluster: ClusterArg,
    /// The nodes of Kind are of this image, with the Kubernetes that is on it [default: one that is made of the components]
    #[arg(long, value_name = "REF")]
    pub(crate) image: Option<String>,
    /// Boot the VM from power-on, and make no memory snapshot
    #[arg(long)]
    pub(crate) cold: bool,
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum QemuArg {
    /// Debian's packages, fetched and verified; nothing is installed
    Debian,
    /// The one on PATH
    System,
}

/// What is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClusterArg {
    /// Control planes alone: etcd and kube-apiserver
    Planes,
    /// A node with kubelet and containers beside them
    Node,
}

/// What system VMs are made from.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct MachineOptions {
    /// Whose QEMU runs a system VM
    #[arg(long, value_enum, default_value = "debian")]
    pub(crate) qemu: QemuArg,
    /// Take the Debian packages that the lock names, or fail
    #[arg(long)]
    pub(crate) locked: bool,
    /// Root of a Debian mirror [default: the one in this machine's apt sources, else deb.debian.org with the snapshot archive behind it]
    #[arg(long, value_name = "URL")]
    pub(crate) debian_mirror: Option<String>,
}

impl ProviderOptions {
    /// Whether there is to be a whole cluster, with a node.
    pub(crate) fn has_node(&self) -> bool {
        self.cluster == ClusterArg::Node || self.provider == Some(ProviderArg::Kind)
    }

    /// The options as they are written.
    pub(crate) fn words(&self) -> Vec<String> {
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
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        options: ProviderOptions,
    }

    #[test]
    fn the_words_of_the_options_are_those_that_were_written() {
        for line in [
            "",
            "--provider process",
            "--provider kind --image r/i:t@sha256:0",
            "--provider qemu --cluster node --cold --qemu system --locked --debian-mirror http://h/d",
        ] {
            let Alone { options } = Alone::try_parse_from(["x"].into_iter().chain(line.split_whitespace())).unwrap();
            assert_eq!(options.words().join(" "), line);
        }
    }
}
