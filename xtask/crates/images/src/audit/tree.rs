//! The files of an image after all of its layers; only ELF files are kept. Pure code: nothing is unpacked.
//!
//! https://github.com/opencontainers/image-spec/blob/v1.1.1/layer.md defines how a layer changes those below it. Paths
//! are used as written: symbolic links are not followed.

use std::collections::BTreeMap;

use model::ElfFacts;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// A path from the root, as its parts.
pub(crate) type Parts = Vec<Vec<u8>>;

#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<Parts, Node>,
}

/// An ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Number of the layer that contains it, from 0.
    pub(crate) layer: usize,
    pub(crate) facts: ElfFacts,
}

/// The kind of an entry of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Folder,
    Elf(ElfFacts),
    /// A file of another kind, a symbolic link, a device.
    Other,
    /// A further name of the file at this path.
    Link(Parts),
}

impl Tree {
    /// Applies an entry of the layer with this number to the tree. Returns how many files were examined for it.
    pub(crate) fn apply(&mut self, layer: usize, path: &[Vec<u8>], entry: Entry) -> u64 {
        let Some((name, folder)) = path.split_last() else { return 0 };
        if name == OPAQUE {
            self.remove(folder, |other, node| other.len() > folder.len() && node.layer < layer)
        } else if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            let hidden = [folder, &[hidden.to_vec()]].concat();
            self.remove(&hidden, |_, node| node.layer < layer)
        } else {
            let linked = match &entry {
                Entry::Link(target) => self.files.get(target).cloned(),
                Entry::Elf(facts) => Some(Node { layer, facts: facts.clone() }),
                Entry::Folder | Entry::Other => None,
            };
            // A folder keeps an existing folder; every other entry replaces a folder and everything in it.
            let looked_at = if entry == Entry::Folder {
                u64::from(self.files.remove(path).is_some())
            } else {
                self.remove(path, |_, _| true)
            };
            if let Some(node) = linked {
                self.files.insert(path.to_vec(), Node { layer, ..node });
            }
            looked_at
        }
    }

    /// Number of ELF files.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// The ELF files that a container sees, by path.
    pub(crate) fn files(&self) -> impl Iterator<Item = (String, &Node)> {
        self.files.iter().map(|(path, node)| (shown(path), node))
    }

    /// Removes files at or below a path; returns how many were examined.
    fn remove(&mut self, folder: &[Vec<u8>], doomed: impl Fn(&Parts, &Node) -> bool) -> u64 {
        let below = self.files.range(folder.to_vec()..).take_while(|(path, _)| path.starts_with(folder));
        let mut looked_at = 0;
        let below = below.inspect(|_| looked_at += 1);
        let gone: Vec<Parts> = below.filter(|(path, node)| doomed(path, node)).map(|(path, _)| path.clone()).collect();
        for path in gone {
            self.files.remove(&path);
        }
        looked_at
    }
}

/// The parts of a path in a layer; None if it leads out of the image.
pub(crate) fn parts(path: &[u8]) -> Option<Parts> {
    let mut parts = Parts::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()?),
            name => parts.push(name.to_vec()),
        }
    }
    Some(parts)
}

pub(crate) fn shown(path: &[Vec<u8>]) -> String {
    path.iter().map(|part| format!("/{}", String::from_utf8_lossy(part))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ByteOrder;

    fn elf() -> Entry {
        Entry::Elf(ElfFacts { class: 64, byte_order: ByteOrder::Little, machine: 62 })
    }

    fn link(target: &str) -> Entry {
        Entry::Link(parts(target.as_bytes()).unwrap())
    }

    /// The remaining files after these layers: "PATH of LAYER".
    fn left(layers: &[&[(&str, Entry)]]) -> Vec<String> {
        let mut tree = Tree::default();
        for (number, layer) in layers.iter().enumerate() {
            for (path, entry) in *layer {
                tree.apply(number, &parts(path.as_bytes()).unwrap(), entry.clone());
            }
        }
        tree.files().map(|(path, node)| format!("{path} of {}", node.layer)).collect()
    }

    #[test]
    fn layers_change_those_below_them() {
        let base: &[(&str, Entry)] = &[("bin/", Entry::Folder), ("bin/a", elf()), ("bin/b", elf()), ("binary", elf())];
        for (above, expected) in [
            (&[][..], &["/bin/a of 0", "/bin/b of 0", "/binary of 0"][..]),
            (&[("bin/.wh.a", Entry::Other)], &["/bin/b of 0", "/binary of 0"]),
            (&[(".wh.bin", Entry::Other)], &["/binary of 0"]),
            (&[("bin/.wh..wh..opq", Entry::Other)], &["/binary of 0"]),
            // A layer's own files are not hidden by its own whiteouts, in any order of entries.
            (&[("bin/c", elf()), ("bin/.wh..wh..opq", Entry::Other)], &["/bin/c of 1", "/binary of 0"]),
            (&[("bin/a", elf()), ("bin/.wh.a", Entry::Other)], &["/bin/a of 1", "/bin/b of 0", "/binary of 0"]),
            (&[("bin/", Entry::Folder)], &["/bin/a of 0", "/bin/b of 0", "/binary of 0"]),
            (&[("bin", Entry::Other)], &["/binary of 0"]),
            (&[("bin/a", Entry::Other)], &["/bin/b of 0", "/binary of 0"]),
            (&[("./bin/a", elf())], &["/bin/a of 1", "/bin/b of 0", "/binary of 0"]),
            (&[("binary", Entry::Folder), ("binary/x", elf())], &["/bin/a of 0", "/bin/b of 0", "/binary/x of 1"]),
            (&[("c", link("bin/a"))], &["/bin/a of 0", "/bin/b of 0", "/binary of 0", "/c of 1"]),
            (&[("bin/b", link("nothing"))], &["/bin/a of 0", "/binary of 0"]),
            (&[(".wh.binary", Entry::Other), ("bin/.wh.nothing", Entry::Other)], &["/bin/a of 0", "/bin/b of 0"]),
        ] {
            assert_eq!(left(&[base, above]), expected, "{above:?}");
        }
    }

    #[test]
    fn paths_cannot_leave_the_image() {
        for (path, expected) in
            [("a/b", Some("/a/b")), ("/a//./b/", Some("/a/b")), ("a/../b", Some("/b")), ("./", Some(""))]
        {
            assert_eq!(parts(path.as_bytes()).map(|parts| shown(&parts)).as_deref(), expected, "{path}");
        }
        for path in ["..", "../a", "a/../../b", "/../a"] {
            assert_eq!(parts(path.as_bytes()), None, "{path}");
        }
    }
}
