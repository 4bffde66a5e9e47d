//! Turns a request into jobs: which component is built in which folder, with which flags, and under which cache key.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, anyhow, bail, ensure};
use model::{Component, ComponentSet, EARLIER_MINORS, Source, component_of, earlier_name, is_minor};
use sys::progress;

use crate::Request;
use crate::audit::{Expected, Origin};
use crate::cache::{self, Inputs};
use crate::checkout::{self, Checkout};
use crate::exported::{self, Import, Manifest};
use crate::go::{self, Env, Toolchain};
use crate::module::{self, Module};
use crate::stamp::{self, Stamp};

/// The input for folders outside a checkout.
const OUTSIDE: &str = "folders outside";

/// One component of the request.
pub(crate) struct Job<'a> {
    /// The name of the artifact: the component's, or that of its program of an earlier minor.
    pub(crate) name: String,
    pub(crate) set: &'a ComponentSet,
    pub(crate) component: &'a Component,
    pub(crate) source: Source,
    pub(crate) work: Work,
}

pub(crate) enum Work {
    Build(Box<GoBuild>),
    /// Uses an existing file.
    Take(PathBuf),
    /// Uses a file that another machine has built and exported.
    Import(Box<Import>),
    /// The release must be resolved first, which a plan does not do. The text says so.
    Resolve(String),
}

/// A `go build` and everything that determines its result.
pub(crate) struct GoBuild {
    pub(crate) go: Rc<Toolchain>,
    pub(crate) tree: Tree,
    pub(crate) dir: PathBuf,
    pub(crate) env: Env,
    pub(crate) stamp: Stamp,
    pub(crate) inputs: Inputs,
    pub(crate) origin: Origin,
}

/// The source to build, shared by the components of a set.
#[derive(Clone)]
pub(crate) enum Tree {
    Module(Rc<Module>),
    Checkout(Rc<Checkout>),
}

/// Whether a release that was never resolved on this machine may be resolved now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolve {
    Now,
    Never,
}

/// The jobs of a request, in the order of the component table.
pub(crate) fn jobs<'a>(request: &Request<'a>, resolve: Resolve) -> anyhow::Result<Vec<Job<'a>>> {
    check_names(request)?;
    let mut jobs = Vec::new();
    for (set, minors) in sets(request) {
        let chosen = wanted(request, set, minors);
        if chosen.is_empty() {
            continue;
        }
        let source = source(request, set, minors)?;
        let prepared = prepare(request, set, &source, resolve)
            .with_context(|| format!("cannot build the {} components from {source}", set.name))?;
        for component in chosen {
            let work = prepared
                .work(request, set, component, &source)
                .with_context(|| format!("cannot build {} from {source}", component.name))?;
            let name = earlier_name(&component.name, minors);
            jobs.push(Job { name, set, component, source: source.clone(), work });
        }
    }
    Ok(jobs)
}

/// Each set as itself, and as each of its earlier minors.
fn sets<'a>(request: &Request<'a>) -> impl Iterator<Item = (&'a ComponentSet, u8)> {
    request.components.sets.iter().flat_map(|set| (0..=EARLIER_MINORS).map(move |minors| (set, minors)))
}

/// The source of a set, or of one of its earlier minors.
fn source(request: &Request<'_>, set: &ComponentSet, minors: u8) -> anyhow::Result<Source> {
    let chosen = request.sources.get(&set.name);
    let Some(place) = usize::from(minors).checked_sub(1) else {
        return Ok(chosen.cloned().unwrap_or(Source::Module(None)));
    };
    let earlier = set.earlier(chosen);
    let release = earlier.get(place).with_context(|| {
        let chosen = chosen.map_or_else(|| "the default".to_owned(), Source::to_string);
        format!("no Go module pins the release of {} that is {minors} minors before {chosen}", set.name)
    })?;
    Ok(Source::Module(Some(format!("v{}", release.minor))))
}

/// The go.mod files that determine which Go the request needs, as far as they are known before a release is resolved.
pub(crate) fn go_mods(request: &Request<'_>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (set, minors) in sets(request) {
        for component in wanted(request, set, minors) {
            // The build reports an unknown release.
            let Ok(source) = source(request, set, minors) else { continue };
            match source {
                Source::Prebuilt(_) => {}
                _ if request.exported.is_some() => {}
                Source::Module(version) => {
                    let folder = module::folder(set, version.as_deref()).unwrap_or_else(|_| set.folder(&set.name));
                    files.push(request.targets_dir.join(folder).join("go.mod"));
                }
                Source::Checkout(path) => {
                    files.push(path.join(component.checkout_dir.as_deref().unwrap_or_default()).join("go.mod"));
                }
            }
        }
    }
    files.sort();
    files.dedup();
    // Ignore a missing file: the build reports it with its cause when it needs it.
    files.retain(|file| file.exists());
    files
}

impl GoBuild {
    pub(crate) fn key(&self) -> String {
        cache::key(&self.inputs)
    }

    /// The arguments of `go`. `date` is the build date; it is not part of the key because it follows from the rest.
    pub(crate) fn args(&self, job: &Job<'_>, date: &str, output: &Path) -> anyhow::Result<Vec<String>> {
        let ldflags = stamp::fill(&job.set.ldflags, &self.stamp, date)?;
        let mut args = vec!["build".to_owned(), "-v".to_owned(), "-trimpath".to_owned()];
        if !job.set.tags.is_empty() {
            args.extend(["-tags".to_owned(), job.set.tags.join(",")]);
        }
        args.extend(["-ldflags".to_owned(), ldflags, "-o".to_owned(), output.to_string_lossy().into_owned()]);
        args.push(job.component.package.clone());
        Ok(args)
    }

    /// The build date, if it is known without a network request.
    pub(crate) fn date_on_disk(&self, set: &ComponentSet) -> Option<String> {
        let mut offline = self.env.clone();
        offline.insert("GOPROXY".to_owned(), "off".to_owned());
        self.date_with(set, &offline).ok()
    }

    pub(crate) fn date(&self, set: &ComponentSet) -> anyhow::Result<String> {
        self.date_with(set, &self.env)
    }

    /// Fails if the sources are no longer those of the key. The key would name a program that was built from other
    /// sources, and a run would report a checkout as it was before.
    pub(crate) fn must_be_unchanged(&self, set: &ComponentSet) -> anyhow::Result<()> {
        let (dir, same) = match &self.tree {
            Tree::Module(module) => (&module.dir, module::read(&self.go, set, &module.dir)?.files == module.files),
            Tree::Checkout(checkout) => {
                let outside = checkout.outside(&self.go, &self.dir, &self.env)?;
                let tree = checkout::inspect(&checkout.root)?.tree;
                (&checkout.root, tree == checkout.tree && outside.as_ref() == self.inputs.get(OUTSIDE))
            }
        };
        ensure!(same, "the sources in {} changed during the build: build again", dir.display());
        Ok(())
    }

    fn date_with(&self, set: &ComponentSet, env: &Env) -> anyhow::Result<String> {
        match &self.tree {
            Tree::Module(module) if stamp::needs_date(&set.ldflags) => module.time(&self.go, set, env),
            Tree::Module(_) => Ok(module::EPOCH.to_owned()),
            Tree::Checkout(checkout) => Ok(checkout.date.clone()),
        }
    }
}

impl<'a> Job<'a> {
    /// What the audit must find in a file of this job.
    pub(crate) fn expected<'b>(&'b self, request: &'b Request<'_>, tags: &'b str, origin: &'b Origin) -> Expected<'b> {
        let (component, package) = (&self.component.name, &self.component.package);
        Expected { target: request.target, component, package, tags, origin }
    }
}

/// The requested components of a set, or of one of its earlier minors.
fn wanted<'a>(request: &Request<'_>, set: &'a ComponentSet, minors: u8) -> Vec<&'a Component> {
    let is_wanted = |component: &&Component| match request.only {
        Some(names) => names.contains(&earlier_name(&component.name, minors)),
        None => minors == 0 && !component.optional,
    };
    set.components.iter().filter(is_wanted).collect()
}

fn check_names(request: &Request<'_>) -> anyhow::Result<()> {
    let sets: Vec<&str> = request.components.sets.iter().map(|s| s.name.as_str()).collect();
    if let Some(unknown) = request.sources.keys().find(|name| !sets.contains(&name.as_str())) {
        bail!("unknown component set `{unknown}`: the sets are {}", sets.join(", "));
    }
    let components = request.components.sets.iter().flat_map(|s| &s.components).map(|c| c.name.as_str());
    let components: Vec<&str> = components.collect();
    let unknown = request.only.unwrap_or_default().iter().find(|name| !components.contains(&component_of(name).0));
    match unknown {
        Some(name) => bail!("unknown component `{name}`: the components are {}", components.join(", ")),
        None => Ok(()),
    }
}

/// The part that is common to the components of one set.
enum Prepared {
    Module { go: Rc<Toolchain>, module: Rc<Module>, env: Env, settings: Env },
    Checkout { checkout: Rc<Checkout>, env: Env },
    Prebuilt(PathBuf),
    Exported(Manifest),
    Unresolved(String),
}

fn prepare(request: &Request<'_>, set: &ComponentSet, source: &Source, resolve: Resolve) -> anyhow::Result<Prepared> {
    let given = request.exported.as_ref().filter(|_| !matches!(source, Source::Prebuilt(_)));
    if let Some(given) = given {
        if let Some(url) = given.url.as_ref().filter(|_| resolve == Resolve::Never) {
            return Ok(Prepared::Unresolved(format!("it is downloaded from {url}")));
        }
        return Ok(Prepared::Exported(Manifest::read(&given.folder, &exported::label(request.target))?));
    }
    match source {
        Source::Prebuilt(dir) => Ok(Prepared::Prebuilt(dir.clone())),
        Source::Checkout(path) => {
            has_checkouts(set)?;
            let env = go::build_env(request.target, checkout::GO_FLAGS, request.offline);
            let reading = progress::Phase::start(format!("read {}", path.display()));
            let checkout = Rc::new(checkout::inspect(path)?);
            drop(reading);
            checkout.note.iter().for_each(|note| progress::say(note));
            Ok(Prepared::Checkout { checkout, env })
        }
        Source::Module(version) => {
            let dir = request.targets_dir.join(module::folder(set, version.as_deref())?);
            let go = Rc::new(Toolchain::find(&dir.join("go.mod"), request.go.as_deref())?);
            let mut env = go::build_env(request.target, module::GO_FLAGS, request.offline);
            // A go.work in a parent folder would add other modules.
            env.insert("GOWORK".to_owned(), "off".to_owned());
            let mut module = module::read(&go, set, &dir)?;
            if let Some(version) = version.as_ref().filter(|v| !is_minor(v) && **v != module.version) {
                let resolved = module.dir_of(set, version, request.cache_dir);
                if resolve == Resolve::Never && !resolved.exists() {
                    let why = format!("{}@{version} must be resolved first, with `go mod tidy`", set.main_module);
                    return Ok(Prepared::Unresolved(why));
                }
                module = module.at(&go, set, version, request.cache_dir, &env)?;
            }
            let settings = go.code_settings(&request.target.name, &env)?;
            Ok(Prepared::Module { go, module: Rc::new(module), env, settings })
        }
    }
}

/// Refuses a set whose program belongs to this project: a source tree of its main module does not contain the program.
fn has_checkouts(set: &ComponentSet) -> anyhow::Result<()> {
    if set.has_own_program() && !set.is_own() {
        bail!(
            "a checkout of {} does not contain the project's program, which is built only against released modules: \
             choose a version, or prebuilt:DIR",
            set.main_module
        );
    }
    Ok(())
}

impl Prepared {
    fn work(
        &self,
        request: &Request<'_>,
        set: &ComponentSet,
        component: &Component,
        source: &Source,
    ) -> anyhow::Result<Work> {
        match self {
            Prepared::Prebuilt(dir) => Ok(Work::Take(find_prebuilt(dir, &request.target.name, &component.name)?)),
            Prepared::Exported(manifest) => {
                Ok(Work::Import(Box::new(manifest.import(request, set, component, source)?)))
            }
            Prepared::Unresolved(why) => Ok(Work::Resolve(why.clone())),
            Prepared::Module { go, module, env, settings } => {
                let stamp = module_stamp(set, module);
                let mut inputs = inputs(request, set, component, go, env, settings)?;
                inputs.extend(stamp_inputs(&stamp));
                inputs.extend(module.files.clone());
                let origin = Origin::Module { version: module.version_of(&component.package)?.to_owned() };
                let (tree, dir) = (Tree::Module(module.clone()), module.dir.clone());
                let build = GoBuild { go: go.clone(), tree, dir, env: env.clone(), stamp, inputs, origin };
                Ok(Work::Build(Box::new(build)))
            }
            Prepared::Checkout { checkout, env } => {
                let dir = checkout.build_dir(component.checkout_dir.as_deref(), &component.package)?;
                let go = Rc::new(Toolchain::find(&dir.join("go.mod"), request.go.as_deref())?);
                let settings = go.code_settings(&request.target.name, env)?;
                let mut inputs = inputs(request, set, component, &go, env, &settings)?;
                inputs.extend(stamp_inputs(&checkout.stamp));
                inputs.insert("source tree".to_owned(), checkout.tree.clone());
                inputs.insert("folder".to_owned(), component.checkout_dir.clone().unwrap_or_default());
                inputs.extend(checkout.outside(&go, &dir, env)?.map(|digest| (OUTSIDE.to_owned(), digest)));
                let (tree, stamp) = (Tree::Checkout(checkout.clone()), checkout.stamp.clone());
                let build = GoBuild { go, tree, dir, env: env.clone(), stamp, inputs, origin: Origin::Checkout };
                Ok(Work::Build(Box::new(build)))
            }
        }
    }
}

/// The stamp of a release: its commit comes from the component table. A module proxy does not report the commit, so if
/// the table does not have it either, the module's own sum identifies the tree.
fn module_stamp(set: &ComponentSet, module: &Module) -> Stamp {
    let version = module.version.clone();
    match &set.commit {
        Some(commit) if module.default => Stamp { version, commit: commit.clone(), tree_state: "clean".to_owned() },
        _ => {
            let commit = module.sum.clone().unwrap_or_else(|| "unknown".to_owned());
            Stamp { version, commit, tree_state: "archive".to_owned() }
        }
    }
}

fn inputs(
    request: &Request<'_>,
    set: &ComponentSet,
    component: &Component,
    go: &Toolchain,
    env: &Env,
    settings: &Env,
) -> anyhow::Result<Inputs> {
    let mut inputs = cache::table_inputs(&request.target.name, set, component);
    inputs.insert("go".to_owned(), go.version.clone());
    inputs.extend(go.content()?.map(|digest| ("content of go".to_owned(), digest)));
    // GOPROXY does not shape the binary: go.sum fixes the modules, whatever their source.
    let shaping = env.iter().filter(|(name, _)| *name != "GOPROXY");
    inputs.extend(settings.iter().chain(shaping).map(|(name, value)| (name.clone(), value.clone())));
    Ok(inputs)
}

fn stamp_inputs(stamp: &Stamp) -> [(String, String); 3] {
    [("version", &stamp.version), ("commit", &stamp.commit), ("tree state", &stamp.tree_state)]
        .map(|(name, value)| (name.to_owned(), value.clone()))
}

/// `DIR/ARCH/COMPONENT` or `DIR/COMPONENT`.
fn find_prebuilt(dir: &Path, arch: &str, component: &str) -> anyhow::Result<PathBuf> {
    let places = [dir.join(arch).join(component), dir.join(component)];
    let file = places
        .iter()
        .find(|place| place.exists())
        .ok_or_else(|| anyhow!("neither {} nor {} exists", places[0].display(), places[1].display()))?;
    file.canonicalize().with_context(|| format!("failed to find {}", file.display()))
}
