//! CPU and memory that this machine can give to more processes, also inside a container; and the disk that folders use.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// CPUs that this process may use, within a container's limit.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// MiB of memory that new processes can use without swapping, within a container's limit. None where it is unknown.
pub fn available_memory() -> Option<u64> {
    let text = |file: &str| fs::read_to_string(file).ok();
    let machine = text("/proc/meminfo").and_then(|text| of_meminfo(&text));
    // cgroup v2, then v1, at the paths where a container sees its own group.
    let groups = [
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ];
    let group = groups.iter().filter_map(|(limit, usage)| of_group(&text(limit)?, &text(usage)?)).min();
    machine.into_iter().chain(group).min()
}

/// Bytes on the disk of the path and everything below it; a sparse file counts with its allocated blocks, a link with its
/// own.
pub fn disk_usage(path: &Path) -> u64 {
    let Ok(data) = fs::symlink_metadata(path) else { return 0 };
    let below = data.is_dir().then(|| fs::read_dir(path).into_iter().flatten().flatten());
    data.blocks() * 512 + below.into_iter().flatten().map(|entry| disk_usage(&entry.path())).sum::<u64>()
}

/// `MemAvailable` in MiB.
fn of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib / 1024)
}

/// What a control group has left, in MiB. None if it has no limit (`max`).
fn of_group(limit: &str, usage: &str) -> Option<u64> {
    let bytes = |text: &str| text.trim().parse::<u64>().ok();
    Some(bytes(limit)?.saturating_sub(bytes(usage)?) >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_parsed_as_the_kernel_writes_it() {
        let text = "MemTotal:       24656316 kB\nMemFree:        22043312 kB\nMemAvailable:   23080576 kB\n";
        assert_eq!(of_meminfo(text), Some(22539));
        assert_eq!(of_meminfo("MemTotal: 1 kB\n"), None);
        assert_eq!(of_meminfo("MemAvailable: much\n"), None);
    }

    #[test]
    fn disk_usage_includes_subfolders_and_does_not_follow_links() {
        let scratch = crate::Scratch::temporary("usage").unwrap();
        let dir = scratch.path();
        let inner = dir.join("private").join("pki");
        fs::create_dir_all(&inner).unwrap();
        let empty = disk_usage(dir);
        std::os::unix::fs::symlink("/", inner.join("root")).unwrap();
        fs::write(inner.join("key"), vec![1; 100_000]).unwrap();
        let grown = disk_usage(dir) - empty;
        assert!((100_000..200_000).contains(&grown), "{grown}");
        assert_eq!(disk_usage(&dir.join("absent")), 0);
    }

    #[test]
    fn group_without_a_limit_returns_none() {
        for (limit, usage, expected) in [
            ("max\n", "1048576\n", None),
            ("4294967296\n", "1073741824\n", Some(3072)),
            // cgroup v1 writes a huge number for no limit.
            ("9223372036854771712\n", "0\n", Some(8796093022207)),
            ("1048576\n", "2097152\n", Some(0)),
            ("", "0\n", None),
        ] {
            assert_eq!(of_group(limit, usage), expected, "{limit:?} {usage:?}");
        }
    }
}
