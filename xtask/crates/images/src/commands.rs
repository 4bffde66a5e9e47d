//! `cargo xtask images`: builds OCI images of the components, and audits any image.

mod node;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use cli::{Failure, OrExit, Paths, chosen, print, print_json};
use model::{Artifacts, ElfFacts, Exit, ImageOrder, ImageRecipe, Images, Target};
use serde::Serialize;
use sys::progress;
use targets::Catalogue;

use crate::args::{ImageSelection, ImagesAuditOptions, ImagesBuildOptions, ImagesCommand, ImagesOptions};
use crate::{Audit, Built, NoImage, Request, Rules};

/// Below the cache.
const FOLDER: &str = "images";

/// Loads a docker archive into the container engine.
pub type Load = fn(&Path) -> anyhow::Result<()>;

/// `load` is for `images node --load`.
pub fn run(paths: &Paths, options: &ImagesOptions, load: Load) -> Result<Exit, Failure> {
    match &options.command {
        ImagesCommand::Build(options) => build(paths, options),
        ImagesCommand::Node(options) => node::run(paths, options, load),
        ImagesCommand::List(selection) => list(paths, selection),
        ImagesCommand::Audit(options) => audit(paths, options),
    }
}

fn build(paths: &Paths, options: &ImagesBuildOptions) -> Result<Exit, Failure> {
    if options.dry_run {
        return list(paths, &options.selection);
    }
    let catalogue = Catalogue::load(&paths.targets)?;
    let chosen = Chosen::of(&catalogue, &options.selection)?;
    let mut artifacts: Vec<Artifacts> = Vec::new();
    for target in &chosen.targets {
        let request = chosen.request(paths, &catalogue, target);
        artifacts.push(cli::built(paths, request).or_exit(Exit::Build)?);
    }
    let orders = chosen.orders(&catalogue, &artifacts);
    let output = options.output.clone().unwrap_or_else(|| paths.cache.join(FOLDER));
    let phase = progress::Phase::start("write images");
    let request = Request { images: &catalogue.images, orders: &orders, formats: &options.formats, output: &output };
    let built = crate::build(&request).or_exit(Exit::Infrastructure)?;
    phase.done(&format!("{} in {}", built.len(), output.display()));
    if options.selection.json {
        print_json(&built)?;
    } else {
        print(&lines(&built));
    }
    Ok(Exit::Ok)
}

fn list(paths: &Paths, selection: &ImageSelection) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let chosen = Chosen::of(&catalogue, selection)?;
    let mut listed = Vec::new();
    for target in &chosen.targets {
        let request = chosen.request(paths, &catalogue, target);
        let steps = build::plan(&request).or_exit(Exit::Build)?;
        for recipe in &chosen.recipes {
            listed.push(chosen.listed(&catalogue.images, recipe, &steps, target));
        }
    }
    if selection.json {
        print_json(&listed)?;
    } else {
        listed.iter().for_each(|image| print(&format!("{image}\n")));
    }
    Ok(Exit::Ok)
}

fn audit(paths: &Paths, options: &ImagesAuditOptions) -> Result<Exit, Failure> {
    if !options.file.exists() {
        return Err(Failure::usage(no_file(&options.file)));
    }
    let catalogue = Catalogue::load(&paths.targets)?;
    let rules = Rules {
        elf: elf_facts(&catalogue),
        no_processors: catalogue.images.no_processors.clone(),
        toolchains: catalogue.toolchains.clone(),
        allowed: options.allowed.clone(),
        max_size: options.max_size,
        cache: paths.cache.clone(),
    };
    let audit = crate::audit(&options.file, &rules).map_err(|error| {
        let exit = if error.is::<NoImage>() { Exit::Usage } else { Exit::Infrastructure };
        Failure { exit: cli::or_interrupted(&error, exit), error }
    })?;
    if options.json {
        print_json(&audit)?;
    } else {
        print(&found(&audit));
    }
    tell(&audit);
    Ok(match (audit.findings(), audit.elf_files()) {
        (0, 0) => Exit::NothingRan,
        (0, _) => Exit::Ok,
        _ => Exit::Conformance,
    })
}

/// The images, components and architectures that a selection names.
struct Chosen<'a> {
    targets: Vec<&'a Target>,
    recipes: Vec<&'a ImageRecipe>,
    components: Vec<String>,
    selection: &'a ImageSelection,
    /// The Kubernetes version whose kubeadm defines the tags, if it is known before a build.
    kubernetes: String,
}

impl<'a> Chosen<'a> {
    fn of(catalogue: &'a Catalogue, selection: &'a ImageSelection) -> Result<Chosen<'a>, Failure> {
        cli::known_releases(catalogue, &selection.sources)?;
        let recipes: Vec<&ImageRecipe> = match selection.images.as_slice() {
            [] => catalogue.images.images.iter().collect(),
            names => names.iter().map(|name| catalogue.image(name)).collect::<Result<_, _>>()?,
        };
        let given = match &selection.sources.kubernetes {
            model::Source::Module(version) => version.clone(),
            _ => None,
        };
        let default = || Some(catalogue.set("kubernetes").ok()?.default_release()?.version.clone());
        Ok(Chosen {
            targets: chosen(catalogue, &selection.arch)?,
            components: Images::components(recipes.iter().copied()),
            recipes,
            selection,
            kubernetes: given.or_else(default).unwrap_or_default(),
        })
    }

    fn request<'b>(&'b self, paths: &'b Paths, catalogue: &'b Catalogue, target: &'b Target) -> build::Request<'b> {
        let request = cli::request(paths, catalogue, target, Some(&self.selection.sources));
        build::Request { only: Some(&self.components), ..request }
    }

    /// The images with their binaries. The version of a Kubernetes checkout is known only here, after the build.
    fn orders<'b>(&'b self, catalogue: &Catalogue, artifacts: &'b [Artifacts]) -> Vec<ImageOrder<'b>> {
        let version = |component: &str| Some(artifacts.first()?.by_component.get(component)?.version.clone());
        let kubernetes = version("kube-apiserver").unwrap_or_else(|| self.kubernetes.clone());
        let order = |recipe: &&'b ImageRecipe| {
            let tag = recipe.tag(&kubernetes, &version(recipe.main_component()).unwrap_or_default());
            let reference = catalogue.images.reference(recipe, &tag);
            let env = crate::recipes::env(catalogue, recipe, artifacts.iter().map(|artifacts| artifacts.arch.as_str()));
            ImageOrder { recipe, reference, artifacts: artifacts.iter().collect(), env }
        };
        self.recipes.iter().map(order).collect()
    }

    fn listed(&self, images: &Images, recipe: &ImageRecipe, steps: &[build::Step], target: &Target) -> Listed {
        let version = |component: &str| {
            let step = steps.iter().find(|step| step.component == component);
            step.map_or_else(String::new, |step| step.version.clone())
        };
        let tag = recipe.tag(&self.kubernetes, &version(recipe.main_component()));
        let files = recipe.files.iter().map(|file| (file.path.clone(), version(&file.component))).collect();
        let cached = |name: &str| {
            steps.iter().any(|step| step.component == name && matches!(step.plan, build::Plan::Hit { .. }))
        };
        let missing = recipe.files.iter().filter(|file| !cached(&file.component));
        Listed {
            reference: images.reference(recipe, &tag),
            arch: target.name.clone(),
            files,
            not_built: missing.map(|file| file.component.clone()).collect(),
        }
    }
}

/// An image of the list.
#[derive(Serialize)]
struct Listed {
    reference: String,
    arch: String,
    /// Versions of the programs by path; empty if they are not known before a build.
    files: BTreeMap<String, String>,
    /// Components that are not in the cache.
    not_built: Vec<String>,
}

impl std::fmt::Display for Listed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let files: Vec<String> = self.files.iter().map(|(path, version)| format!("{path} {version}")).collect();
        let files: Vec<&str> = files.iter().map(|file| file.trim_end()).collect();
        write!(f, "{} {}: {}", self.reference, self.arch, files.join(", "))?;
        match self.not_built.as_slice() {
            [] => Ok(()),
            missing => write!(f, "; to be built: {}", missing.join(", ")),
        }
    }
}

fn lines(built: &[Built]) -> String {
    let line = |image: &Built| {
        let place = image.archive.as_ref().map_or_else(String::new, |file| format!(" {}", file.display()));
        format!("{} {} {}{place}\n", image.reference, image.arch, image.digest)
    };
    built.iter().map(line).collect()
}

/// The expected ELF header for each architecture: of the targets, and of architectures that are only audited.
fn elf_facts(catalogue: &Catalogue) -> BTreeMap<String, ElfFacts> {
    let targets = catalogue.targets.iter().map(|target| (target.name.clone(), target.elf.clone()));
    let foreign = catalogue.images.foreign.iter().map(|foreign| (foreign.architecture.clone(), foreign.elf.clone()));
    targets.chain(foreign).collect()
}

/// A line for each finding.
fn found(audit: &Audit) -> String {
    let of = |image: &crate::AuditedImage| {
        let name = if image.reference.is_empty() { &image.digest } else { &image.reference };
        let line = |finding: &crate::Finding| format!("{name} {}: {}\n", image.architecture, finding.message);
        image.findings.iter().map(line).collect::<String>()
    };
    audit.images.iter().map(of).collect()
}

/// Prints a summary of the audit for people.
fn tell(audit: &Audit) {
    for image in &audit.images {
        let name = if image.reference.is_empty() { &image.digest } else { &image.reference };
        let variant = image.variant.as_ref().map_or_else(String::new, |variant| format!("/{variant}"));
        let (arch, layers, files) = (&image.architecture, image.layers, image.elf_files);
        let findings = image.findings.len();
        progress::say(&format!("{name} {arch}{variant}: {layers} layers, {files} ELF files, {findings} findings"));
        image.notes.iter().for_each(|note| progress::say(&format!("  note: {note}")));
    }
    audit.notes.iter().for_each(|note| progress::say(&format!("note: {note}")));
    if audit.findings() == 0 && audit.elf_files() == 0 {
        progress::say("no image contains an ELF file: nothing was audited");
    }
}

fn no_file(file: &Path) -> anyhow::Error {
    let file = file.display();
    anyhow!(
        "{file} does not exist. This command does not pull images from registries; save the image to a file, so that \
         the audited image can be kept. `skopeo copy --all docker://{file} oci-archive:image.tar` writes one with \
         every architecture, `docker save {file} -o image.tar` writes one from the local engine"
    )
}
