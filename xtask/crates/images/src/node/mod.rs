//! The root file system of a node in a VM: a read-only ext4 image in the cache, with everything that a machine needs to
//! run Pods.
//!
//! The disk is assembled from Debian packages, the built components and their images. `mke2fs` writes it, so root is
//! not required. It does not contain what a run adds (keys, flags, configuration). Crate `boot` makes it the root of a
//! guest; its content is data (`targets/node.yaml`).

mod disk;
mod stage;

use std::path::{Path, PathBuf};

use model::{Artifacts, ImageOrder, Images, NodeDisk};

pub use disk::{FOLDER, disk, writer};

/// The inputs of a disk.
pub struct Request<'a> {
    pub disk: &'a NodeDisk,
    /// Must contain all components that the disk names.
    pub artifacts: &'a Artifacts,
    pub images: &'a Images,
    /// The images that the disk names, with these artifacts.
    pub orders: &'a [ImageOrder<'a>],
    /// Root of the unpacked packages of the guest's architecture.
    pub packages: &'a Path,
    /// A digest over these packages.
    pub packages_digest: &'a str,
    /// Statically linked, of the guest's architecture.
    pub busybox: &'a Path,
    /// The disk is stored in a folder below it.
    pub cache: &'a Path,
}

/// A disk image. Equal inputs have the same file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub file: PathBuf,
    /// Hexadecimal SHA-256 over the inputs.
    pub key: String,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use serde_json::json;
    use sys::Scratch;
    use sys::exec::{self, Shell, cmd};

    use super::*;
    use crate::testing::artifact;

    /// Packages, a shell and one component.
    struct Made {
        scratch: Scratch,
        artifacts: Artifacts,
        disk: NodeDisk,
        images: Images,
    }

    impl Made {
        fn new() -> Made {
            let scratch = Scratch::temporary("node").unwrap();
            for (path, mode) in
                [("packages/usr/bin/crun", 0o700), ("packages/usr/lib64/ld.so", 0o755), ("busybox", 0o700)]
            {
                fs::set_permissions(scratch.write(path, path), fs::Permissions::from_mode(mode)).unwrap();
            }
            symlink("crun", scratch.path().join("packages/usr/bin/runc")).unwrap();
            let kubelet = artifact("kubelet", &scratch.write("kubelet", "the kubelet"), "1");
            let by_component = BTreeMap::from([("kubelet".to_owned(), kubelet)]);
            let artifacts = Artifacts { arch: "riscv64".into(), by_component, native: None };
            let disk = NodeDisk {
                programs: vec!["kubelet".into()],
                files: BTreeMap::from([("etc/hosts".to_owned(), "127.0.0.1 localhost\n".to_owned())]),
                ..NodeDisk::default()
            };
            let images = serde_json::from_value(json!({"registry": "registry.example.org", "images": []})).unwrap();
            Made { scratch, artifacts, disk, images }
        }

        fn disk_in(&self, cache: &str) -> anyhow::Result<Disk> {
            disk(&Request {
                disk: &self.disk,
                artifacts: &self.artifacts,
                images: &self.images,
                orders: &[],
                packages: &self.scratch.path().join("packages"),
                packages_digest: "2",
                busybox: &self.scratch.path().join("busybox"),
                cache: &self.scratch.path().join(cache),
            })
        }
    }

    /// The output of `debugfs`, which comes with `mke2fs`, for a request about the image.
    fn asked(disk: &Disk, request: &str) -> String {
        let sh = Shell::new().unwrap();
        let (file, program) = (&disk.file, disk::administrators("debugfs").unwrap());
        exec::run(cmd!(sh, "{program} -R {request} {file}"), std::time::Duration::from_secs(60)).unwrap().stdout
    }

    #[test]
    fn disk_contains_every_input_at_its_expected_path() {
        let made = Made::new();
        let disk = made.disk_in("cache").unwrap();
        for (path, content) in [
            ("/usr/bin/crun", "packages/usr/bin/crun"),
            ("/usr/bin/kubelet", "the kubelet"),
            ("/usr/bin/busybox", "busybox"),
            ("/usr/lib64/ld.so", "packages/usr/lib64/ld.so"),
            ("/etc/hosts", "127.0.0.1 localhost\n"),
        ] {
            assert_eq!(asked(&disk, &format!("cat {path}")), content);
        }
        // The cache may be readable only by its owner, but Pods run as other users.
        for (path, said) in [
            ("/usr/bin/crun", "Mode:  0555"),
            ("/bin", "Fast link dest: \"usr/bin\""),
            ("/lib64", "Fast link dest: \"usr/lib64\""),
            ("/usr/bin/runc", "Fast link dest: \"crun\""),
            ("/usr/bin/mount", "Fast link dest: \"busybox\""),
            ("/var", "Type: directory"),
        ] {
            let found = asked(&disk, &format!("stat {path}"));
            assert!(found.contains(said), "{path}: {found}");
        }
    }

    #[test]
    fn disk_is_created_once_and_again_after_damage() {
        let made = Made::new();
        let disk = made.disk_in("cache").unwrap();
        let look = || fs::metadata(&disk.file).map(|found| (found.ino(), found.len())).unwrap();
        let first = look();
        assert_eq!(made.disk_in("cache").unwrap(), disk);
        assert_eq!(look(), first);
        fs::File::options().write(true).open(&disk.file).unwrap().set_len(4096).unwrap();
        assert_eq!(made.disk_in("cache").unwrap(), disk);
        assert_eq!(look().1, first.1);
    }

    #[test]
    fn different_inputs_make_a_different_disk() {
        let mut made = Made::new();
        let key = made.disk_in("cache").unwrap().key;
        made.disk.files.insert("etc/group".into(), "root:x:0:\n".into());
        let with_file = made.disk_in("cache").unwrap().key;
        made.artifacts.by_component.get_mut("kubelet").unwrap().sha256 = "3".into();
        let with_kubelet = made.disk_in("cache").unwrap().key;
        assert!(key != with_file && with_file != with_kubelet && key != with_kubelet);
    }

    #[test]
    fn missing_component_is_named_and_no_disk_is_left() {
        let mut made = Made::new();
        made.disk.cni.push("bridge".into());
        let error = format!("{:#}", made.disk_in("cache").unwrap_err());
        assert!(error.ends_with("the node's disk needs bridge, which was not built"), "{error}");
        assert_eq!(fs::read_dir(made.scratch.path().join("cache").join(FOLDER)).unwrap().count(), 0);
    }
}
