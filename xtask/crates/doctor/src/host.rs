//! Checks of the machine as a whole.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cli::Paths;
use cli::finding::{Finding, Status};
use fetch::GoPlan;
use model::{NativeJob, Target};
use provider::ProviderArg;
use rustix::fs::{Access, StatVfsMountFlags};
use sys::exec::{self, Shell, cmd};
use sys::ports::Survey;
use sys::{Scratch, ports};

use super::Environment;

/// Deadline for a program that prints its version, and for one small compilation. A slow board needs seconds to load a
/// compiler from its card, and all checks run at the same time.
pub(crate) const ANSWER: Duration = Duration::from_secs(15);
const MIB: u64 = 1 << 20;
/// MiB in the cache for an architecture: built components; for a VM also packages (150, and 450 unpacked) and memory
/// snapshots (500 and more for each set of profiles).
const NATIVE_MIB: u64 = 512;
const MACHINE_MIB: u64 = 2048;
/// MiB that the Go build cache grows by for each architecture, and size of the module cache.
const GO_BUILD_MIB: u64 = 2048;
const GO_MODULES_MIB: u64 = 1024;
/// MiB of Rust's target folder; 2600 were measured with builds and tests of some crates.
const RUST_BUILD_MIB: u64 = 3072;
/// MiB of a run's logs, histories and store copies.
const REPORT_MIB: u64 = 256;
/// Below this, no run is possible.
const LEAST_MIB: u64 = 200;
/// Enough for all architectures with all profiles.
const PORTS: usize = 500;
/// 2026-01-01. With an earlier clock, the certificates of a run, and of any server, are not valid yet.
const EPOCH: i64 = 1_767_225_600;

/// Checks that Go is installed, and new enough for the modules to build.
pub(crate) fn go(environment: &Environment, _: Option<&Target>) -> Vec<Finding> {
    if let Some(given) = &environment.components {
        let targets = environment.targets.iter().map(|(target, _)| target);
        return targets.map(|target| judge_components(given, target, &environment.paths)).collect();
    }
    let needed = environment.catalogue.components.sets.iter().filter_map(|set| {
        let text =
            std::fs::read_to_string(environment.paths.targets.join(set.folder(&set.name)).join("go.mod")).ok()?;
        go_line(&text).map(str::to_owned)
    });
    let needed = needed.max_by_key(|version| numbers(version)).unwrap_or_default();
    let found = exec::find("go").map(|program| go_env(&program, "GOVERSION"));
    let plan = environment.host.as_ref().map(|host| fetch::go_plan(host, &needed, &environment.fetch));
    let plan = plan.unwrap_or_else(|| Err(anyhow::anyhow!("no target file describes this machine")));
    vec![judge_go(&needed, found, plan.map_err(|error| format!("{error:#}")), environment.fetch.offline)]
}

/// Checks that a folder has the components of an architecture. The run downloads those of a URL.
fn judge_components(given: &str, target: &Target, paths: &Paths) -> Finding {
    let finding = |status, text: String| Finding::new("components", status, text).of(Some(target));
    match cli::exported_list(paths, given, target) {
        Some(list) if !list.exists() => {
            let cure = format!("`cargo xtask build --arch {} --export DIR` on a machine with Go", target.name);
            finding(Status::Problem, format!("{} does not exist", list.display())).cure(cure)
        }
        Some(list) => finding(Status::Ok, format!("{}; Go is not needed", list.display())),
        None => finding(Status::Ok, format!("from {given}; Go is not needed")),
    }
}

/// Returns a value of `go env`; with `GOTOOLCHAIN=local`, so that `go` never downloads another toolchain.
fn go_env(program: &Path, name: &str) -> Result<String, String> {
    let ask = || -> anyhow::Result<String> {
        let shell = Shell::new()?;
        // In a module that requires a newer Go, every `go` command fails.
        shell.change_dir("/");
        let command = cmd!(shell, "{program} env {name}").env("GOTOOLCHAIN", "local");
        Ok(exec::run(command, ANSWER)?.stdout.trim().to_owned())
    };
    ask().map_err(|error| format!("{error:#}"))
}

/// `found`: the version that `go` reports, or why it fails; `None` if no `go` is on PATH. `plan`: the toolchain to use if
/// `go` is missing or too old.
fn judge_go(
    needed: &str,
    found: Option<Result<String, String>>,
    plan: Result<GoPlan, String>,
    offline: bool,
) -> Finding {
    let finding = |status, text: String| Finding::new("go", status, text);
    let cure = format!(
        "install Go {needed} or newer from https://go.dev/dl/ and put its `bin` folder first on PATH, or give components \
         that another machine has built (--components)"
    );
    let lacks = match found {
        Some(Ok(version)) if numbers(version.trim_start_matches("go")) >= numbers(needed) => {
            return finding(Status::Ok, format!("{version} is on PATH, {needed} or newer is needed"));
        }
        Some(Ok(version)) => format!("{version} is on PATH, {needed} or newer is needed"),
        Some(Err(why)) => {
            return finding(Status::Problem, format!("`go` on PATH does not work: {}", line(&why))).cure(cure);
        }
        None => "no `go` on PATH".to_owned(),
    };
    let GoPlan { version, origin, cached, size } = match plan {
        Ok(plan) => plan,
        Err(why) => return finding(Status::Problem, format!("{lacks}; {why}")).cure(cure),
    };
    if cached {
        finding(Status::Ok, format!("{lacks}; {version} in the cache is used, {origin}"))
    } else if offline {
        finding(Status::Problem, format!("{lacks}, and {version} is not in the cache ({origin})")).cure(cure)
    } else {
        let text = format!("{lacks}; the first build downloads {version}, {} MiB, {origin}", size.div_ceil(MIB));
        finding(Status::Warning, text).cure(cure)
    }
}

fn go_line(go_mod: &str) -> Option<&str> {
    go_mod.lines().find_map(|line| line.strip_prefix("go ")).map(str::trim)
}

/// Ignores text after a number, as in `1.27rc1`.
pub(crate) fn numbers(version: &str) -> Vec<u32> {
    let number = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    version.split('.').map_while(number).collect()
}

/// Checks that the cache is writable, can contain programs, and supports sparse files.
pub(crate) fn cache(environment: &Environment, _: Option<&Target>) -> Vec<Finding> {
    let cache = &environment.paths.cache;
    let finding = |status, text: String| Finding::new("cache", status, text);
    let elsewhere = "use another folder: --cache DIR or ARCHPROOF_CACHE=DIR";
    let scratch = match Scratch::create(cache, "doctor") {
        Ok(scratch) => scratch,
        Err(error) => {
            let text = format!("{} is not writable: {}", cache.display(), error.root_cause());
            return vec![finding(Status::Problem, text).cure(elsewhere)];
        }
    };
    let shown = cache.display();
    let flags = rustix::fs::statvfs(scratch.path()).map(|stat| stat.f_flag);
    let found = if flags.is_ok_and(|flags| flags.contains(StatVfsMountFlags::NOEXEC)) {
        let text = format!("{shown} is mounted noexec: components and QEMU cannot run from there");
        finding(Status::Problem, text).cure(elsewhere)
    } else if !sparse(&scratch.path().join("sparse")).unwrap_or(true) {
        let text = format!("the file system of {shown} has no sparse files: memory snapshots take their full size");
        finding(Status::Warning, text).cure(elsewhere)
    } else {
        finding(Status::Ok, format!("{shown} is writable, and programs run from it"))
    };
    vec![found]
}

/// Whether a file can be larger than the space that it takes on the disk.
fn sparse(path: &Path) -> std::io::Result<bool> {
    let file = std::fs::File::create(path)?;
    file.set_len(16 * MIB)?;
    Ok(file.metadata()?.blocks() * 512 < MIB)
}

/// Checks that the reports folder is writable.
pub(crate) fn reports(environment: &Environment, _: Option<&Target>) -> Vec<Finding> {
    let reports = &environment.paths.reports;
    let shown = reports.display();
    // The first run may still have to create it.
    let there = reports.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    let found = match rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Finding::new("reports", Status::Ok, format!("{shown} is writable")),
        Err(error) => Finding::new("reports", Status::Problem, format!("{shown} is not writable: {error}"))
            .cure("use another folder: --reports DIR or ARCHPROOF_REPORTS=DIR"),
    };
    vec![found]
}

/// Checks the free space where a run writes.
pub(crate) fn disk(environment: &Environment, _: Option<&Target>) -> Vec<Finding> {
    let judged = places(environment).into_iter().filter_map(|Place { what, dir, needed, cure }| {
        // The first run may still have to create it.
        let dir = dir.ancestors().find(|dir| dir.exists())?;
        let stat = rustix::fs::statvfs(dir).ok()?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize) / MIB;
        Some(judge_disk(&format!("{what} ({})", dir.display()), free, needed, cure))
    });
    judged.collect()
}

/// A folder in which a run writes.
struct Place {
    what: &'static str,
    dir: PathBuf,
    /// MiB.
    needed: u64,
    cure: &'static str,
}

fn places(environment: &Environment) -> Vec<Place> {
    let Environment { paths, targets, job, .. } = environment;
    let count = targets.len() as u64;
    let of_one = |way: &ProviderArg| if *way == ProviderArg::Qemu { MACHINE_MIB } else { NATIVE_MIB };
    let mut cache: u64 = targets.iter().map(|(_, way)| of_one(way)).sum();
    let for_go = count * GO_BUILD_MIB + GO_MODULES_MIB;
    let go = exec::find("go").and_then(|program| go_env(&program, "GOCACHE").ok());
    if go.is_none() && *job == Some(NativeJob::Source) {
        // Go is fetched, and by default writes next to this cache.
        cache += for_go;
    }
    let cleared = "cargo xtask cache prune";
    let reports = count * REPORT_MIB;
    let mut places = vec![
        Place { what: "the cache", dir: paths.cache.clone(), needed: cache, cure: cleared },
        Place { what: "reports", dir: paths.reports.clone(), needed: reports, cure: "remove old runs in this folder" },
    ];
    if *job != Some(NativeJob::Prebuilt) {
        let of_go =
            |dir: String| Place { what: "Go's build cache", dir: dir.into(), needed: for_go, cure: "go clean -cache" };
        places.extend(go.map(of_go));
    }
    if *job == Some(NativeJob::Source) {
        let dir = paths.targets.parent().map_or(PathBuf::from("."), Path::to_owned);
        places.push(Place { what: "Rust's target folder", dir, needed: RUST_BUILD_MIB, cure: "cargo clean" });
    }
    places
}

fn judge_disk(what: &str, free: u64, needed: u64, cure: &str) -> Finding {
    let text = format!("{free} MiB are free for {what}; a run without any cache needs up to {needed} MiB");
    match free {
        _ if free >= needed => Finding::new("disk", Status::Ok, text),
        _ if free >= LEAST_MIB => Finding::new("disk", Status::Warning, text).cure(cure),
        _ => Finding::new("disk", Status::Problem, text).cure(cure),
    }
}

/// Checks the ports that control planes listen on.
pub(crate) fn ports(_: &Environment, _: Option<&Target>) -> Vec<Finding> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let range: Vec<u16> = range.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    vec![judge_ports(ports::survey(), &range)]
}

/// `outgoing`: the first and the last port that the kernel uses for outgoing connections.
fn judge_ports(survey: Survey, outgoing: &[u16]) -> Finding {
    let Survey { first, end, free } = survey;
    let text = format!("{free} of the ports {first} to {} on 127.0.0.1 are free", end - 1);
    let finding = |status, text| Finding::new("ports", status, text);
    match outgoing {
        _ if free == 0 => finding(Status::Problem, text).cure("ip link set lo up; ss -ltnp"),
        _ if free < PORTS => finding(Status::Warning, text).cure("ss -ltnp"),
        [from, to] if *from < end && *to >= first => {
            let text =
                format!("{text}, but the kernel uses ports from {from} on for outgoing connections; they may clash");
            finding(Status::Warning, text).cure(format!("sudo sysctl net.ipv4.ip_local_port_range=\"32768 {to}\""))
        }
        _ => finding(Status::Ok, text),
    }
}

/// Checks the clock, because certificates depend on it.
pub(crate) fn clock(_: &Environment, _: Option<&Target>) -> Vec<Finding> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    vec![judge_clock(i64::try_from(now.as_secs()).unwrap_or_default())]
}

fn judge_clock(now: i64) -> Finding {
    if now >= EPOCH {
        return Finding::new("clock", Status::Ok, "plausible");
    }
    let text = "the clock is set to a time long ago: certificates of servers will not be valid";
    Finding::new("clock", Status::Problem, text).cure("sudo timedatectl set-ntp true")
}

/// Checks Docker, which only Kind clusters need.
pub(crate) fn docker(environment: &Environment, _: Option<&Target>) -> Vec<Finding> {
    let arch = environment.host.as_ref().map(|host| host.name.as_str()).unwrap_or_default();
    let engine = exec::find("docker");
    let engine = engine.map(|_| boot::kind::engine_version(arch).map_err(|error| format!("{error:#}")));
    vec![judge_docker(engine)]
}

/// Checks for the program that creates the disk of a node.
pub(crate) fn mke2fs(_: &Environment, _: Option<&Target>) -> Vec<Finding> {
    let finding =
        |status, text: String| Finding::new("mke2fs", status, format!("{text}; only `--cluster node` needs it"));
    vec![match images::node::writer() {
        Some(program) => finding(Status::Ok, program.display().to_string()),
        None => finding(Status::Warning, "no `mke2fs` found".into()).cure("apt-get install e2fsprogs"),
    }]
}

/// The engine's name and version, or why it cannot run Kind clusters; `None` if no client is installed.
fn judge_docker(engine: Option<Result<String, String>>) -> Finding {
    let finding = |status, text: String| Finding::new("docker", status, format!("{text}; only Kind clusters need it"));
    match engine {
        None => finding(Status::Warning, "no `docker` on PATH".into()).cure("apt-get install docker.io"),
        Some(Ok(engine)) => finding(Status::Ok, format!("{engine} answers")),
        Some(Err(why)) if why.contains("connect") => {
            let cure = "sudo systemctl start docker; sudo usermod -aG docker $USER";
            finding(Status::Warning, format!("the engine does not answer: {}", line(&why))).cure(cure)
        }
        Some(Err(why)) => finding(Status::Warning, line(&why).to_owned()),
    }
}

/// The last line that is not empty: in the error of a command, its own message.
pub(crate) fn line(text: &str) -> &str {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_must_be_new_enough_or_a_pinned_toolchain_available() {
        let plan = |cached| {
            Ok(GoPlan { version: "1.26.8".into(), origin: "pinned somewhere".into(), cached, size: (70 << 20) - 1 })
        };
        let (there, to_be_had) = (|| plan(true), || plan(false));
        let not_pinned = || Err("go.lock names no toolchain".to_owned());
        for (found, pinned, offline, status, part) in [
            (None, not_pinned(), false, Status::Problem, "no `go` on PATH; go.lock names no toolchain"),
            (None, there(), true, Status::Ok, "no `go` on PATH; 1.26.8 in the cache is used, pinned"),
            (None, to_be_had(), false, Status::Warning, "the first build downloads 1.26.8, 70 MiB, pinned"),
            (None, to_be_had(), true, Status::Problem, "1.26.8 is not in the cache"),
            (Some(Err("`go env` failed:\nexec format error\n\n")), there(), false, Status::Problem, "exec format"),
            (Some(Ok("go1.25.9")), to_be_had(), false, Status::Warning, "go1.25.9 is on PATH"),
            (Some(Ok("go1.26rc1")), not_pinned(), false, Status::Problem, "go1.26rc1"),
            (Some(Ok("go1.26.0")), not_pinned(), true, Status::Ok, "go1.26.0"),
            (Some(Ok("go1.27rc1")), not_pinned(), true, Status::Ok, "go1.27rc1"),
            (Some(Ok("go1.100.2 X:jsonv2")), not_pinned(), true, Status::Ok, "1.26.0 or newer"),
        ] {
            let found = found.map(|found: Result<&str, &str>| found.map(str::to_owned).map_err(str::to_owned));
            let finding = judge_go("1.26.0", found, pinned, offline);
            assert!(finding.status == status && finding.text.contains(part), "{finding:?}, expected `{part}`");
            assert_eq!(finding.fix.is_some(), status != Status::Ok, "{finding:?}");
        }
        assert_eq!(go_line("module x\n\ngo 1.26.0\n\ntoolchain go1.27\n"), Some("1.26.0"));
    }

    #[test]
    fn low_disk_space_is_a_warning_and_very_low_a_problem() {
        for (free, status) in [(5000, Status::Ok), (2048, Status::Ok), (2047, Status::Warning), (199, Status::Problem)]
        {
            assert_eq!(judge_disk("x", free, 2048, "y").status, status, "{free}");
        }
    }

    #[test]
    fn ports_must_be_free_and_outside_the_range_for_outgoing_connections() {
        let survey = |free| Survey { first: 20_000, end: 32_000, free };
        for (free, outgoing, status) in [
            (12_000, &[32_768, 60_999][..], Status::Ok),
            (12_000, &[], Status::Ok),
            (12_000, &[32_000, 60_999], Status::Ok),
            (12_000, &[1024, 65_535], Status::Warning),
            (12_000, &[31_999, 60_999], Status::Warning),
            (12_000, &[1024, 20_000], Status::Warning),
            (12_000, &[1024, 19_999], Status::Ok),
            (499, &[32_768, 60_999], Status::Warning),
            (0, &[32_768, 60_999], Status::Problem),
        ] {
            let finding = judge_ports(survey(free), outgoing);
            assert_eq!(finding.status, status, "{free} {outgoing:?}");
            assert_eq!(finding.fix.is_some(), status != Status::Ok, "{finding:?}");
        }
    }

    #[test]
    fn clock_in_1970_is_a_problem() {
        assert_eq!(judge_clock(0).status, Status::Problem);
        assert_eq!(judge_clock(1_795_000_000).status, Status::Ok);
    }

    #[test]
    fn missing_docker_is_never_a_problem() {
        for (engine, status, part) in [
            (None, Status::Warning, "no `docker`"),
            (Some(Ok("Docker 29.1.0".to_owned())), Status::Ok, "29.1.0"),
            (Some(Err("`docker` is Podman here".to_owned())), Status::Warning, "is Podman"),
            (Some(Err("`docker version` failed:\nCannot connect".to_owned())), Status::Warning, "Cannot connect"),
        ] {
            let finding = judge_docker(engine);
            assert!(finding.status == status && finding.text.contains(part), "{finding:?}");
        }
    }

    #[test]
    fn sparse_file_probe_keeps_the_full_length() {
        let dir = Scratch::temporary("sparse").unwrap();
        let path = dir.write("sparse", vec![1; 16 << 20]);
        assert!(std::fs::metadata(&path).unwrap().blocks() * 512 >= MIB);
        sparse(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 16 * MIB);
    }
}
