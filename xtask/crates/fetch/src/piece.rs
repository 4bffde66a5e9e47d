//! The sets of packages that a VM or a container needs, and the tree that each set is unpacked to.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use model::{HostGo, Machine, Node, NodeImage, Target};

use crate::deb::Unpacker;
use crate::sets::{self, Locks, Settled, Want};
use crate::tree::{self, Tree};
use crate::{Options, QemuChoice, debian_go, emulator, guest};

/// Part of the trees' names. Change it when the same packages are unpacked differently.
pub(crate) const RECIPE: &str = "2";

/// A set of packages and the tree that is made from it.
pub(crate) struct Piece<'a> {
    pub(crate) want: Want,
    pub(crate) machine: &'a Machine,
    pub(crate) kind: Kind<'a>,
    /// What determines the content of the tree in addition to the packages.
    pub(crate) recipe: Vec<String>,
}

/// The kind of tree that is made from a piece's packages.
#[derive(Clone, Copy)]
pub(crate) enum Kind<'a> {
    /// Kernel, modules and shell; a node has more modules.
    Guest(Option<&'a Node>),
    Emulator,
    /// Everything in the packages, except the files that are left out.
    Node(&'a Node),
    Container(&'a NodeImage),
    Go(&'a HostGo),
}

/// The locks of each target, with the packages that were resolved later.
pub(crate) type AllLocks = BTreeMap<String, Locks>;

/// The piece for the root file system of a container.
pub(crate) fn root<'a>(target: &Target, machine: &'a Machine, image: &'a NodeImage) -> Piece<'a> {
    let (want, recipe) = (sets::container(target, machine, image), image.leave_out.clone());
    Piece { want, machine, kind: Kind::Container(image), recipe }
}

/// The piece for Go on hosts of an architecture.
pub(crate) fn go<'a>(host: &Target, machine: &'a Machine, go: &'a HostGo) -> Piece<'a> {
    Piece { want: sets::go(host, machine, go), machine, kind: Kind::Go(go), recipe: vec![go.root.clone()] }
}

/// The pieces of each target, the guest first, and the locks that contain them.
pub(crate) fn pieces<'a>(
    host: &Target,
    targets: &[&'a Target],
    options: &'a Options,
) -> anyhow::Result<(Vec<Piece<'a>>, AllLocks)> {
    let mut pieces = Vec::new();
    for target in targets {
        let machine = target.machine.as_ref().with_context(|| {
            format!(
                "targets/architectures/{0}.yaml has no `machine`, so {0} has no system VM: use --provider process",
                target.name
            )
        })?;
        let want = sets::guest(target, machine);
        let node = options.node.as_ref();
        let recipe = guest::modules(machine, node).iter().map(guest::Asked::key).collect();
        pieces.push(Piece { want, machine, kind: Kind::Guest(node), recipe });
        if options.qemu == QemuChoice::Debian {
            let on = host.machine.as_ref().with_context(|| {
                format!(
                    "targets/architectures/{0}.yaml has no `machine`, so the QEMU for {0} hosts is unknown: use --qemu system",
                    host.name
                )
            })?;
            let recipe = [Some(machine.qemu.program.clone()), machine.qemu.firmware.clone()];
            let recipe = recipe.into_iter().flatten().collect();
            let want = sets::emulator(host, on, target, machine);
            pieces.push(Piece { want, machine, kind: Kind::Emulator, recipe });
        }
        if let Some(node) = node {
            let want = sets::node(target, machine, node);
            pieces.push(Piece { want, machine, kind: Kind::Node(node), recipe: node.leave_out.clone() });
        }
        if let Some(image) = &options.container {
            pieces.push(root(target, machine, image));
        }
    }
    let mut locks = BTreeMap::new();
    for piece in &pieces {
        let target = &piece.want.target;
        if !locks.contains_key(target) {
            locks.insert(target.clone(), Locks::load(options, target)?);
        }
    }
    Ok((pieces, locks))
}

impl Piece<'_> {
    pub(crate) fn tree_dir(&self, settled: &Settled, options: &Options) -> PathBuf {
        let recipe: Vec<&str> = [RECIPE].into_iter().chain(self.recipe.iter().map(String::as_str)).collect();
        options.debian().join("trees").join(settled.key(&recipe))
    }

    pub(crate) fn unpack(&self, settled: &Settled, options: &Options) -> anyhow::Result<Tree> {
        let debs: Vec<PathBuf> = settled.set.pins.iter().map(|pin| sets::pool_file(options, pin)).collect();
        let made = tree::make(&self.tree_dir(settled, options), &self.want.title, |tree| match self.kind {
            Kind::Guest(node) => guest::unpack(&guest::modules(self.machine, node), &debs, tree),
            Kind::Emulator => {
                for deb in &debs {
                    tree.unpack(deb, &|path| emulator::wanted(&self.machine.qemu.program, path))?;
                }
                emulator::examine(self.machine, tree)
            }
            Kind::Node(node) => all_but(&debs, tree, &|path| node.leaves_out(path)),
            Kind::Container(image) => all_but(&debs, tree, &|path| image.leaves_out(path)),
            Kind::Go(go) => {
                all_but(&debs, tree, &|path| !debian_go::wanted(go, path))?;
                debian_go::examine(go, tree)
            }
        });
        made.with_context(|| format!("failed to unpack {}", self.want.title))
    }
}

/// Unpacks all files of the packages that are not left out.
fn all_but(debs: &[PathBuf], tree: &mut Unpacker, left_out: &dyn Fn(&str) -> bool) -> anyhow::Result<String> {
    debs.iter().try_for_each(|deb| tree.unpack(deb, &|path| !left_out(path)))?;
    Ok(String::new())
}
