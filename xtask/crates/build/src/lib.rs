//! Cross-builds the components with `go build`, or takes existing binaries, and audits each file.
//!
//! The public interface is [`build`] and, for a dry run, [`plan`]. Components and versions are data
//! (`targets/components.yaml` and the Go modules next to it). This crate does not run what it built.

mod audit;
mod buildinfo;
mod cache;
mod checkout;
mod digest;
mod elf;
mod exported;
#[doc(hidden)]
pub mod fuzzing;
mod go;
mod go_release;
mod go_tool;
mod job;
mod module;
mod prebuilt;
mod schema;
mod stamp;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use model::{Artifact, Artifacts, BuildStep, Components, Source, Target};
use serde::{Deserialize, Serialize};
use sys::{interrupt, progress};

pub use digest::{Fields, sha256};
pub use elf::machine_name;
pub use exported::{ExportedFile, files as exported_files, label as exported_label, manifest_name};
pub use go_release::{GoProgram, GoScan, go_program};
pub use go_tool::GoTool;
pub use module::{in_step, staged_version};
pub use schema::{ApiModule, ProtoPackage, SourceFile, api_modules, proto_packages};

use audit::Origin;
use cache::{Cache, Entry, Record};
use exported::Import;
use job::{GoBuild, Job, Resolve, Tree, Work};

/// Digits of a key or digest that messages show.
const SHORT: usize = 12;

/// What to build, from which sources, and where to store it.
#[derive(Clone)]
pub struct Request<'a> {
    pub target: &'a Target,
    pub components: &'a Components,
    /// `targets`, with the Go modules of the sets.
    pub targets_dir: &'a Path,
    /// Binaries are stored below `components/`, copies of `prebuilt:` and exported ones below `prebuilt/`, resolved
    /// releases below `modules/`.
    pub cache_dir: &'a Path,
    /// Sources by set name. A set without an entry uses its pinned module.
    pub sources: BTreeMap<String, Source>,
    /// Component names; None means all components that are not optional.
    pub only: Option<&'a [String]>,
    /// Fail instead of downloading a Go module.
    pub offline: bool,
    /// Components that were built on another machine: nothing is built, except that `prebuilt:` sources stay.
    pub exported: Option<Exported>,
    /// A `go` program to use if the one on PATH is missing or too old; see [`go_missing`].
    pub go: Option<PathBuf>,
}

/// Where exported components are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// With `components-ARCH.json`.
    pub folder: PathBuf,
    /// From where the caller downloads into the folder before it builds.
    pub url: Option<String>,
}

/// A Go toolchain that is needed and not on PATH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoMissing {
    /// The minimum version, for example "1.26.0".
    pub version: String,
    /// GOPROXY setting of the older Go on PATH, if any.
    pub proxy: Option<String>,
}

/// What [`build`] would do for one component.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    pub component: String,
    /// GOARCH.
    pub arch: String,
    pub source: Source,
    /// Empty if it is not known before the build.
    pub version: String,
    pub plan: Plan,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Plan {
    /// The cache has an intact binary.
    Hit { key: String, path: PathBuf },
    /// `command` would run, with the output path for `OUTPUT` and, if only a request can get the date, with `{date}`.
    Build { key: String, why: String, command: String },
    /// The release must be resolved before more is known.
    Resolve { why: String },
    /// The file would be audited, copied and used.
    Take { path: PathBuf },
}

/// One line; a build has its command on a second line.
impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Step { component, arch, version, .. } = self;
        write!(f, "{component}{}{version} {arch}: ", if version.is_empty() { "" } else { " " })?;
        match &self.plan {
            Plan::Hit { key, path } => write!(f, "cache hit {}, {}", &key[..SHORT], path.display()),
            Plan::Build { why, command, .. } => write!(f, "cache miss, {why}\n  {command}"),
            Plan::Resolve { why } => f.write_str(why),
            Plan::Take { path } => write!(f, "to be audited and taken from {}", path.display()),
        }
    }
}

/// Builds every requested component, or finds it in the cache, one after the other.
///
/// # Errors
/// A missing or too old Go, a compiler error (with the compiler's output), a file that is not the requested program, an
/// unknown name, an interrupt (`sys::exec::ExecError::Interrupted` or `sys::interrupt::Interrupted` in the chain).
pub fn build(request: &Request<'_>) -> anyhow::Result<Artifacts> {
    let (targets_dir, cache_dir) = absolute(request)?;
    let request = &request.at(&targets_dir, &cache_dir);
    let cache = Cache::at(cache_dir.join("components"));
    let mut artifacts = Artifacts { arch: request.target.name.clone(), ..Artifacts::default() };
    let mut jobs = job::jobs(request, Resolve::Now)?;
    // Existing files first: a wrong file is then refused before minutes of compiling.
    jobs.sort_by_key(|job| matches!(job.work, Work::Build(_)));
    for job in jobs {
        interrupt::check()?;
        let artifact = match &job.work {
            Work::Build(build) => build_or_find(request, &cache, &job, build)?,
            Work::Take(file) => take(request, &job, file)?,
            Work::Import(import) => import_of(request, &job, import)?,
            Work::Resolve(why) => bail!("{} cannot be built: {why}", job.source),
        };
        artifacts.by_component.insert(artifact.component.clone(), artifact);
    }
    Ok(artifacts)
}

/// What [`build`] would do. Downloads, builds and writes nothing.
///
/// # Errors
/// As for [`build`], as far as they can be found without building.
pub fn plan(request: &Request<'_>) -> anyhow::Result<Vec<Step>> {
    let (targets_dir, cache_dir) = absolute(request)?;
    let request = &request.at(&targets_dir, &cache_dir);
    let cache = Cache::at(cache_dir.join("components"));
    let jobs = job::jobs(request, Resolve::Never)?;
    jobs.iter().map(|job| step(request, &cache, job)).collect()
}

/// The Go that [`build`] needs as `Request::go`; None if the `go` on PATH is new enough.
///
/// # Errors
/// A go.mod cannot be read, or the `go` on PATH does not answer.
pub fn go_missing(request: &Request<'_>) -> anyhow::Result<Option<GoMissing>> {
    let missing = go::missing(&job::go_mods(request))?;
    Ok(missing.map(|(version, proxy)| GoMissing { version, proxy }))
}

/// The folder in Go's module cache with the files of a set's main module, downloaded and checked against its go.sum.
///
/// # Errors
/// The set is unknown, Go is missing, or the module cannot be downloaded.
pub fn module_files(request: &Request<'_>, set: &str) -> anyhow::Result<PathBuf> {
    let (targets_dir, _) = absolute(request)?;
    let set = request.components.sets.iter().find(|found| found.name == set);
    let set = set.with_context(|| format!("unknown component set {set:?}"))?;
    let dir = targets_dir.join(module::folder(set, None)?);
    let go = go::Toolchain::find(&dir.join("go.mod"), request.go.as_deref())?;
    let env = go::build_env(request.target, module::GO_FLAGS, request.offline);
    let phase = progress::Phase::start(format!("fetch {}", set.main_module));
    let answer = go.fetch(&dir, &env, &["mod", "download", "-json", &set.main_module], &phase)?;
    let downloaded: Downloaded =
        serde_json::from_str(&answer).context("`go mod download` printed unexpected output")?;
    phase.done(&downloaded.version);
    Ok(downloaded.dir)
}

/// The output of `go mod download -json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Downloaded {
    version: String,
    dir: PathBuf,
}

impl Request<'_> {
    fn at<'b>(&'b self, targets_dir: &'b Path, cache_dir: &'b Path) -> Request<'b> {
        Request {
            targets_dir,
            cache_dir,
            sources: self.sources.clone(),
            exported: self.exported.clone(),
            go: self.go.clone(),
            ..*self
        }
    }
}

/// The request's folders as absolute paths, because `go` runs in other working directories.
fn absolute(request: &Request<'_>) -> anyhow::Result<(PathBuf, PathBuf)> {
    Ok((std::path::absolute(request.targets_dir)?, std::path::absolute(request.cache_dir)?))
}

fn step(request: &Request<'_>, cache: &Cache, job: &Job<'_>) -> anyhow::Result<Step> {
    let (version, plan) = match &job.work {
        Work::Resolve(why) => (String::new(), Plan::Resolve { why: why.clone() }),
        Work::Take(file) => (String::new(), Plan::Take { path: file.clone() }),
        Work::Import(import) => (import.record.version.clone(), Plan::Take { path: import.file.clone() }),
        Work::Build(build) => {
            let plan = match lookup(request, cache, job, build) {
                Ok(entry) => Plan::Hit { key: build.key(), path: entry.path },
                Err(why) => {
                    let date = build.date_on_disk(job.set).unwrap_or_else(|| "{date}".to_owned());
                    let args = build.args(job, &date, Path::new("OUTPUT"))?;
                    Plan::Build { key: build.key(), why, command: build.go.shown(&build.dir, &build.env, &args) }
                }
            };
            (build.stamp.version.clone(), plan)
        }
    };
    let (component, arch) = (job.name.clone(), request.target.name.clone());
    Ok(Step { component, arch, source: job.source.clone(), version, plan })
}

fn build_or_find(request: &Request<'_>, cache: &Cache, job: &Job<'_>, build: &GoBuild) -> anyhow::Result<Artifact> {
    let label = format!("{} {} {}", job.name, build.stamp.version, request.target.name);
    let key = build.key();
    match lookup(request, cache, job, build) {
        Ok(entry) => {
            progress::say(&format!("build {label}: cache hit {}", &key[..SHORT]));
            Ok(artifact(job, entry.path, entry.record, BuildStep::Hit { key }))
        }
        Err(why) => {
            progress::say(&format!("build {label}: cache miss, {why}"));
            let (path, record) = run(request, cache, job, build, &label)?;
            let seconds = record.seconds;
            Ok(artifact(job, path, record, BuildStep::Built { key, why, seconds }))
        }
    }
}

/// An intact entry that also passes the audit, or the reason why there is no such entry.
fn lookup(request: &Request<'_>, cache: &Cache, job: &Job<'_>, build: &GoBuild) -> Result<Entry, String> {
    let entry = cache.lookup(&job.component.name, &request.target.name, &build.inputs)?;
    let tags = job.set.tags.join(",");
    let audited = audit::audit(&entry.path, &entry.bytes, &job.expected(request, &tags, &build.origin));
    audited.map_err(|error| format!("the cache entry does not pass the audit: {error:#}"))?;
    Ok(entry)
}

/// Runs `go build`, audits its output and stores it.
fn run(
    request: &Request<'_>,
    cache: &Cache,
    job: &Job<'_>,
    build: &GoBuild,
    label: &str,
) -> anyhow::Result<(PathBuf, Record)> {
    let name = &job.component.name;
    let unfinished = cache.unfinished()?;
    let output = unfinished.file(name);
    let phase = progress::Phase::start(format!("build {label}"));
    if let Tree::Checkout(checkout) = &build.tree {
        checkout.must_hold(&build.go, &build.dir, &build.env, &job.component.package)?;
    }
    let compiled = build.date(job.set).and_then(|date| {
        let args = build.args(job, &date, &output)?;
        let mut env = build.env.clone();
        env.insert("GOTMPDIR".to_owned(), unfinished.work().to_string_lossy().into_owned());
        let repeat = build.go.shown(&build.dir, &build.env, &build.args(job, &date, Path::new("/dev/null"))?);
        build.go.build(&build.dir, &env, &args, &repeat, &phase)?;
        Ok(repeat)
    });
    let command = compiled.with_context(|| match &build.tree {
        Tree::Module(module) if request.offline && interrupt::check().is_ok() => match module.missing(&build.go) {
            Some(missing) => format!("failed to build {label} offline: {missing}"),
            None => format!("failed to build {label} offline"),
        },
        _ => format!("failed to build {label}"),
    })?;
    let seconds = phase.elapsed().as_secs_f64();
    phase.status("audit");
    build.must_be_unchanged(job.set).with_context(|| format!("failed to build {label}"))?;
    let bytes = read(&output)?;
    let tags = job.set.tags.join(",");
    let info = audit::audit(&output, &bytes, &job.expected(request, &tags, &build.origin))?;
    let go = info.map(|info| info.go).unwrap_or_default();
    build.go.must_have_built(&go, &build.dir)?;
    let record = Record {
        component: name.clone(),
        arch: request.target.name.clone(),
        version: build.stamp.version.clone(),
        go,
        sha256: digest::sha256(&bytes),
        size: bytes.len() as u64,
        seconds,
        command,
        inputs: build.inputs.clone(),
    };
    let stored = cache.store(&unfinished, record)?;
    phase.done("built");
    Ok(stored)
}

/// Audits an existing file, and copies it.
fn take(request: &Request<'_>, job: &Job<'_>, file: &Path) -> anyhow::Result<Artifact> {
    let name = &job.component.name;
    let bytes = read(file)?;
    let others = request.components.sets.iter().flat_map(|s| &s.components).filter(|c| c.name != *name);
    let origin = Origin::Prebuilt { other_packages: others.map(|c| c.package.clone()).collect() };
    let info = audit::audit(file, &bytes, &job.expected(request, "", &origin))?;
    must_be_executable(file)?;
    let version = info.as_ref().and_then(|info| audit::recorded_version(info, job.set));
    let version = version.unwrap_or_else(|| "unknown".to_owned());
    let note = match &info {
        None => ", no Go build information".to_owned(),
        Some(info) if info.path != job.component.package => format!(", which is {}", info.path),
        Some(_) => String::new(),
    };
    let sha256 = digest::sha256(&bytes);
    let path = prebuilt::copy(request.cache_dir, name, &bytes, &sha256)?;
    progress::say(&format!("build {name} {version} {}: taken from {}{note}", request.target.name, file.display()));
    let (experimental_flags, unknown_values) = dialect(job, &version);
    Ok(Artifact {
        component: name.clone(),
        experimental_flags,
        unknown_values,
        path,
        sha256,
        size: bytes.len() as u64,
        source: job.source.clone(),
        version,
        go: info.map(|info| info.go).unwrap_or_default(),
        step: BuildStep::Prebuilt,
    })
}

/// Verifies and audits a file that another machine has built, and copies it.
fn import_of(request: &Request<'_>, job: &Job<'_>, import: &Import) -> anyhow::Result<Artifact> {
    let Import { file, record, origin } = import;
    let bytes = exported::verified(file, record.size, &record.sha256)?;
    let tags = job.set.tags.join(",");
    audit::audit(file, &bytes, &job.expected(request, &tags, origin))?;
    let path = prebuilt::copy(request.cache_dir, &record.component, &bytes, &record.sha256)?;
    let key = cache::key(&record.inputs);
    let what = format!("build {} {} {}", record.component, record.version, record.arch);
    progress::say(&format!("{what}: built elsewhere under {}, taken from {}", &key[..SHORT], file.display()));
    Ok(artifact(job, path, record.clone(), BuildStep::Exported { key }))
}

/// Writes the components of a request, which [`build`] has built, for `Request::exported` of another machine: the files
/// `COMPONENT-ARCH`, with their records in `components-ARCH.json`. `schema` are the types of the release with their key,
/// which become `schema-ARCH`.
///
/// # Errors
/// A component is not in the cache, is `prebuilt:`, or `folder` cannot be written.
pub fn export(request: &Request<'_>, folder: &Path, schema: Option<(&str, &[u8])>) -> anyhow::Result<PathBuf> {
    let (targets_dir, cache_dir) = absolute(request)?;
    let request = &request.at(&targets_dir, &cache_dir);
    let cache = Cache::at(cache_dir.join("components"));
    let mut export = exported::Export::into(folder, &exported::label(request.target))?;
    for job in job::jobs(request, Resolve::Now)? {
        interrupt::check()?;
        let name = &job.component.name;
        let Work::Build(build) = &job.work else {
            bail!("{name} comes from {} and cannot be exported: copy that folder instead", job.source)
        };
        let entry = lookup(request, &cache, &job, build).map_err(|why| anyhow!("{name} was not built: {why}"))?;
        export.add(&job.source, &build.origin, entry)?;
    }
    if let Some((key, schema)) = schema {
        export.add_schema(key, schema)?;
    }
    export.finish()
}

/// The types of the release among exported components.
///
/// # Errors
/// The export has none with this key, or a file is damaged.
pub fn exported_schema(folder: &Path, target: &Target, key: &str) -> anyhow::Result<Vec<u8>> {
    exported::Manifest::read(folder, &exported::label(target))?.schema(key)
}

fn artifact(job: &Job<'_>, path: PathBuf, record: Record, step: BuildStep) -> Artifact {
    let Record { version, go, sha256, size, .. } = record;
    let component = job.name.clone();
    let (experimental_flags, unknown_values) = dialect(job, &version);
    let source = job.source.clone();
    Artifact { component, path, sha256, size, source, version, go, step, experimental_flags, unknown_values }
}

/// The flag names of this version, and the flag values that it does not know.
fn dialect(job: &Job<'_>, version: &str) -> (Vec<String>, Vec<String>) {
    let release = job.set.release(version);
    release.map(|release| (release.experimental_flags.clone(), release.unknown_values.clone())).unwrap_or_default()
}

fn must_be_executable(file: &Path) -> anyhow::Result<()> {
    if std::fs::metadata(file)?.permissions().mode() & 0o111 == 0 {
        bail!("{} is not executable: run `chmod +x` on it", file.display());
    }
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("failed to read {}", file.display()))
}
