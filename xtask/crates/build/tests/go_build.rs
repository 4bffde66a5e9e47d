//! The whole stage with the real `go`, on programs of a few lines that need only Go's runtime package.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use build::{Exported, Plan, Request, build, export, plan, sha256};
use model::{Artifact, BuildStep, Component, ComponentSet, Components, Release, Source, Target};
use xshell::{Shell, cmd};

const LONG: Duration = Duration::from_secs(600);

/// A folder with a set `hello` of two programs, and a cache.
struct Fixture {
    dir: PathBuf,
    components: Components,
    offline: bool,
    exported: Option<Exported>,
}

impl Fixture {
    fn new(test: &str) -> Fixture {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("go-build-{test}"));
        // Left by an earlier run; absent on the first.
        let _ = fs::remove_dir_all(&dir);
        let component = |name: &str| Component {
            name: name.into(),
            package: format!("example.org/hello/cmd/{name}"),
            checkout_dir: None,
            optional: name == "extra",
        };
        let set = ComponentSet {
            name: "hello".into(),
            main_module: "example.org/hello".into(),
            ldflags: vec!["-s".into(), "-w".into(), "-X main.version={version}".into()],
            tags: vec!["conformance".into()],
            components: vec![component("hello"), component("extra")],
            ..ComponentSet::default()
        };
        let components = Components { sets: vec![set], groups: Vec::new() };
        let fixture = Fixture { dir, components, offline: true, exported: None };
        fixture.write(
            "components/hello/go.mod",
            "module components/hello\n\ngo 1.21\n\nrequire example.org/hello v1.2.3\n\n\
             replace example.org/hello => ./source\n",
        );
        fixture.write("components/hello/source/go.mod", "module example.org/hello\n\ngo 1.21\n");
        for name in ["hello", "extra"] {
            fixture.write(
                &format!("components/hello/source/cmd/{name}/main.go"),
                "package main\n\nvar version = \"unset\"\n\nfunc main() { println(version) }\n",
            );
        }
        fixture
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let file = self.dir.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, content).unwrap();
        file
    }

    fn append(&self, name: &str, content: &str) {
        let before = fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        self.write(name, &(before + content));
    }

    fn with<T>(&self, target: &Target, source: Source, only: Option<&[String]>, run: impl Fn(&Request<'_>) -> T) -> T {
        run(&Request {
            target,
            components: &self.components,
            targets_dir: &self.dir,
            cache_dir: &self.dir.join("cache"),
            sources: BTreeMap::from([("hello".into(), source)]),
            only,
            offline: self.offline,
            exported: self.exported.clone(),
            go: None,
        })
    }

    fn build(&self, arch: &str, source: Source) -> Result<Artifact, String> {
        let artifacts = self.with(&target(arch), source, None, build).map_err(|e| format!("{e:#}"))?;
        assert_eq!(artifacts.arch, arch);
        assert_eq!(artifacts.by_component.len(), 1, "the optional component was not requested");
        Ok(artifacts.by_component["hello"].clone())
    }

    fn module(&self, arch: &str) -> Result<Artifact, String> {
        self.build(arch, Source::Module(None))
    }
}

fn target(arch: &str) -> Target {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../targets/architectures").join(format!("{arch}.yaml"));
    serde_yaml::from_str(&fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())))
        .unwrap()
}

fn host() -> String {
    let shell = Shell::new().unwrap();
    sys::exec::run(cmd!(shell, "go env GOHOSTARCH"), LONG).unwrap().stdout.trim().to_owned()
}

/// The standard error of a program.
fn printed(program: &Path) -> String {
    let shell = Shell::new().unwrap();
    sys::exec::run(cmd!(shell, "{program}"), LONG).unwrap().stderr.trim().to_owned()
}

fn foreign() -> &'static str {
    if host() == "riscv64" { "arm64" } else { "riscv64" }
}

/// The path relative to this process's working directory.
fn relative(path: &Path) -> PathBuf {
    let up: PathBuf = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect();
    up.join(path.strip_prefix("/").unwrap())
}

/// The cache key of the first component.
fn key(request: &Request<'_>) -> String {
    match &plan(request).unwrap()[0].plan {
        Plan::Build { key, .. } | Plan::Hit { key, .. } => key.clone(),
        other => panic!("no key in {other:?}"),
    }
}

fn reason(artifact: &Artifact) -> &str {
    match &artifact.step {
        BuildStep::Built { why, .. } => why,
        other => panic!("expected a build, got {other:?}"),
    }
}

#[test]
fn component_is_built_once_per_architecture() {
    let fixture = Fixture::new("hit");
    for arch in [host().as_str(), foreign()] {
        let built = fixture.module(arch).unwrap();
        assert_eq!(reason(&built), "not built before");
        assert_eq!(built.version, "v1.2.3");
        assert!(built.go.starts_with("go1."), "{}", built.go);
        let found = fixture.module(arch).unwrap();
        assert!(matches!(found.step, BuildStep::Hit { .. }), "{:?}", found.step);
        assert_eq!((&found.sha256, &found.path, found.size), (&built.sha256, &built.path, built.size));
        if arch == host() {
            assert_eq!(printed(&built.path), "v1.2.3");
        }
    }
}

#[test]
fn relative_folders_give_the_same_entries() {
    let mut fixture = Fixture::new("relative");
    let built = fixture.module(&host()).unwrap();
    fixture.dir = relative(&fixture.dir);
    let found = fixture.module(&host()).unwrap();
    assert!(matches!(found.step, BuildStep::Hit { .. }), "{:?}", found.step);
    let checkout = fixture.build(&host(), Source::Checkout(fixture.dir.join("components/hello/source"))).unwrap();
    assert!(checkout.path.is_file() && built.path.is_file());
}

#[test]
fn every_input_of_the_binary_changes_the_key() {
    type Change = fn(&mut Fixture, &mut Target);
    let changes: [(&str, Change); 10] = [
        ("tags", |f, _| f.components.sets[0].tags.push("x".into())),
        ("ldflags", |f, _| f.components.sets[0].ldflags.push("-X main.x=y".into())),
        ("commit", |f, _| f.components.sets[0].commit = Some("0123456789abcdef".into())),
        ("package", |f, _| f.components.sets[0].components[0].package.push_str("/inner")),
        ("GOARCH", |_, t| *t = target(foreign())),
        ("go_env", |_, t| drop(t.go_env.insert("EXAMPLE".into(), "1".into()))),
        ("go.mod", |f, _| f.append("components/hello/go.mod", "// x\n")),
        ("go.sum", |f, _| f.append("components/hello/go.sum", "")),
        ("tools.go", |f, _| f.append("components/hello/tools.go", "package tools\n")),
        ("source", |f, _| f.append("components/hello/source/cmd/hello/main.go", "// x\n")),
    ];
    let key_after = |change: Option<Change>| {
        let (mut fixture, mut target) = (Fixture::new("key"), target(&host()));
        if let Some(change) = change {
            change(&mut fixture, &mut target);
        }
        fixture.with(&target, Source::Module(None), None, key)
    };
    let base = key_after(None);
    assert_eq!(key_after(None), base);
    for (name, change) in changes {
        assert_ne!(key_after(Some(change)), base, "{name}");
    }
}

#[test]
fn changed_input_is_rebuilt_and_named() {
    let mut fixture = Fixture::new("change");
    let arch = host();
    fixture.module(&arch).unwrap();
    fixture.components.sets[0].ldflags.pop();
    let why = fixture.module(&arch).unwrap();
    assert_eq!(reason(&why), "changed: ldflags: `-s -w -X main.version={version}` -> `-s -w`");
    fixture.write("components/hello/source/cmd/hello/main.go", "package main\n\nfunc main() {}\n");
    let why = fixture.module(&arch).unwrap();
    assert!(reason(&why).starts_with("changed: folder ./source: "), "{}", reason(&why));
}

#[test]
fn damaged_entry_is_reported_and_rebuilt() {
    let fixture = Fixture::new("damage");
    let first = fixture.module(&host()).unwrap();
    let mut bytes = fs::read(&first.path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&first.path, bytes).unwrap();
    let again = fixture.module(&host()).unwrap();
    let why = reason(&again);
    assert!(why.contains("damaged") && why.contains(&first.sha256) && why.contains("cache"), "{why}");
    assert_eq!(again.sha256, first.sha256, "the same inputs must give the same bytes");
    assert!(matches!(fixture.module(&host()).unwrap().step, BuildStep::Hit { .. }));
}

#[test]
fn error_contains_the_compiler_output() {
    let fixture = Fixture::new("compiler");
    fixture.write("components/hello/source/cmd/hello/main.go", "package main\n\nfunc main() { missing() }\n");
    let error = fixture.module(&host()).unwrap_err();
    for part in ["failed to build hello v1.2.3", "main.go:3:15: undefined: missing", "to repeat it: cd "] {
        assert!(error.contains(part), "`{part}` is missing in: {error}");
    }
    let left: Vec<_> = fs::read_dir(fixture.dir.join("cache/components")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn plan_reports_steps_and_changes_nothing() {
    let fixture = Fixture::new("plan");
    let arch = host();
    let steps = fixture.with(&target(&arch), Source::Module(None), None, plan).unwrap();
    match &steps[0].plan {
        Plan::Build { why, command, .. } => {
            assert_eq!(why, "not built before");
            let parts = ["CGO_ENABLED=0", "GOOS=linux", &format!("GOARCH={arch}"), "-trimpath", "-tags conformance"];
            for part in parts.iter().chain(&["-X main.version=v1.2.3'", "-o OUTPUT example.org/hello/cmd/hello"]) {
                assert!(command.contains(part), "`{part}` is missing in: {command}");
            }
        }
        other => panic!("expected a build, got {other:?}"),
    }
    assert!(
        steps[0].to_string().starts_with(&format!("hello v1.2.3 {arch}: cache miss, not built before\n")),
        "{}",
        steps[0]
    );
    assert!(!fixture.dir.join("cache").exists());
    let path = fixture.module(&arch).unwrap().path;
    let steps = fixture.with(&target(&arch), Source::Module(None), None, plan).unwrap();
    assert!(matches!(&steps[0].plan, Plan::Hit { path: found, .. } if *found == path), "{steps:?}");
    let steps = fixture.with(&target(&arch), Source::Module(Some("v1.2.4".into())), None, plan).unwrap();
    assert!(matches!(&steps[0].plan, Plan::Resolve { why } if why.contains("example.org/hello@v1.2.4")), "{steps:?}");
}

#[test]
fn prebuilt_files_are_audited_and_copied() {
    let fixture = Fixture::new("prebuilt");
    let (arch, other) = (host(), foreign());
    let native = fixture.module(&arch).unwrap();
    let dir = fixture.dir.join("mine");
    let prebuilt = || Source::Prebuilt(dir.clone());
    let missing = fixture.build(&arch, prebuilt()).unwrap_err();
    assert!(missing.contains("neither") && missing.contains("mine/hello exists"), "{missing}");

    fs::create_dir_all(dir.join(other)).unwrap();
    fs::copy(&native.path, dir.join("hello")).unwrap();
    let taken = fixture.build(&arch, prebuilt()).unwrap();
    assert_eq!((taken.version.as_str(), taken.step), ("v1.2.3", BuildStep::Prebuilt));
    // A run still starts the audited program when its owner has built another one.
    fs::write(dir.join("hello"), "another one").unwrap();
    assert!(taken.sha256 == native.sha256 && fs::read(&taken.path).unwrap() == fs::read(&native.path).unwrap());
    fs::copy(&native.path, dir.join("hello")).unwrap();
    let wrong = fixture.build(other, prebuilt()).unwrap_err();
    for part in ["mine/hello", "ELF machine is ", ", expected ", &format!("GOARCH is {arch}, expected {other}")] {
        assert!(wrong.contains(part), "`{part}` is missing in: {wrong}");
    }
    fs::copy(fixture.module(other).unwrap().path, dir.join(other).join("hello")).unwrap();
    assert_eq!(fixture.build(other, prebuilt()).unwrap().sha256, fixture.module(other).unwrap().sha256);

    let extra = ["extra".to_owned()];
    let extra = fixture.with(&target(&arch), Source::Module(None), Some(&extra), build).unwrap();
    fs::copy(&extra.by_component["extra"].path, dir.join("hello")).unwrap();
    let mixed_up = fixture.build(&arch, prebuilt()).unwrap_err();
    assert!(mixed_up.contains("main package is example.org/hello/cmd/extra"), "{mixed_up}");

    fs::copy(&native.path, dir.join("hello")).unwrap();
    fs::set_permissions(dir.join("hello"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(fixture.build(&arch, prebuilt()).unwrap_err().contains("chmod +x"));
}

/// Exports `hello` for an architecture, and lets the fixture take it from there, with a cache of its own.
fn exported(fixture: &mut Fixture, arch: &str) -> (PathBuf, Artifact) {
    let built = fixture.module(arch).unwrap();
    let folder = fixture.dir.join("export");
    fixture.with(&target(arch), Source::Module(None), None, |request| export(request, &folder, None)).unwrap();
    fs::remove_dir_all(fixture.dir.join("cache")).unwrap();
    fixture.exported = Some(Exported { folder: folder.clone(), url: None });
    (folder, built)
}

#[test]
fn exported_component_is_taken_without_a_build() {
    let mut fixture = Fixture::new("export");
    let (folder, built) = exported(&mut fixture, foreign());
    let taken = fixture.module(foreign()).unwrap();
    assert!(matches!(taken.step, BuildStep::Exported { .. }), "{:?}", taken.step);
    // A run still starts the audited program when another export has replaced it.
    fs::write(folder.join(format!("hello-{}", foreign())), "another one").unwrap();
    assert_eq!(sha256(&fs::read(&taken.path).unwrap()), built.sha256);
    assert_eq!((taken.sha256, taken.version, taken.go), (built.sha256, built.version, built.go));
    assert!(!fixture.dir.join("cache/components").exists(), "something was built");
}

#[test]
fn altered_export_is_refused() {
    let mut fixture = Fixture::new("export-altered");
    let (folder, _) = exported(&mut fixture, foreign());
    let file = folder.join(format!("hello-{}", foreign()));
    let list = folder.join(format!("components-{}.json", foreign()));
    let (program, text) = (fs::read(&file).unwrap(), fs::read_to_string(&list).unwrap());
    let refused = |part: &str| {
        let error = fixture.module(foreign()).unwrap_err();
        assert!(error.contains(part), "expected {part:?} in: {error}");
    };
    for (content, part) in [(program.to_ascii_uppercase(), "has SHA-256"), (program[1..].to_vec(), "bytes, expected")] {
        fs::write(&file, content).unwrap();
        refused(part);
    }
    fs::write(&file, &program).unwrap();
    for (old, new, part) in [
        ("\"conformance\"", "\"other\"", "exported by another version of the project"),
        ("\"hello\"", "\"../hello\"", "is no name of a component"),
        ("{", "", "is damaged"),
        (foreign(), "other", "it is for other"),
        ("\"module\": {", "\"prebuilt\": {\"other_packages\": [],", "but its origin is"),
        ("\"v1.2.3\",\n        \"go\"", "\"v1.2.4\",\n        \"go\"", "is v1.2.3 and v1.2.4"),
    ] {
        fs::write(&list, text.replace(old, new)).unwrap();
        refused(part);
    }
}

#[test]
fn export_of_other_sources_is_refused() {
    let mut fixture = Fixture::new("export-other");
    exported(&mut fixture, foreign());
    let error = fixture.build(foreign(), Source::Module(Some("v1.2.4".into()))).unwrap_err();
    assert!(error.contains("it was exported from module: give that as --hello"), "{error}");
    let error = fixture.module(&host()).unwrap_err();
    assert!(error.contains("does not exist") && error.contains("--export DIR"), "{error}");
    let error = fixture.with(&target(foreign()), Source::Module(None), Some(&["extra".to_owned()]), build).unwrap_err();
    assert!(format!("{error:#}").contains("not among the exported components"), "{error:#}");
    // A pinned module that has changed since.
    fixture.append("components/hello/source/cmd/hello/main.go", "\nfunc other() {}\n");
    let error = fixture.module(foreign()).unwrap_err();
    assert!(error.contains("exported by another version of the project") && error.contains("./source"), "{error}");
}

#[test]
fn export_keeps_other_components() {
    let mut fixture = Fixture::new("export-more");
    let (folder, _) = exported(&mut fixture, foreign());
    fixture.exported = None;
    let both = |request: &Request<'_>| build(request).and_then(|_| export(request, &folder, None)).unwrap();
    fixture.with(&target(foreign()), Source::Module(None), Some(&["extra".to_owned()]), both);
    fixture.exported = Some(Exported { folder, url: None });
    fixture.module(foreign()).unwrap();
}

#[test]
fn checkout_is_built_with_its_changes() {
    let fixture = Fixture::new("checkout");
    let tree = fixture.dir.join("components/hello/source");
    let checkout = || Source::Checkout(tree.clone());
    let first = fixture.build(&host(), checkout()).unwrap();
    assert!(first.version.starts_with("v0.0.0-archive+"), "{}", first.version);
    assert!(matches!(fixture.build(&host(), checkout()).unwrap().step, BuildStep::Hit { .. }));
    fixture.write("components/hello/source/cmd/hello/more.go", "package main\n\nfunc init() { println(1) }\n");
    let second = fixture.build(&host(), checkout()).unwrap();
    assert!(reason(&second).contains("source tree: "), "{}", reason(&second));
    assert_ne!(second.sha256, first.sha256);

    let other = fixture.write("other/go.mod", "module example.org/other\n\ngo 1.21\n");
    let error = fixture.build(&host(), Source::Checkout(other.parent().unwrap().into())).unwrap_err();
    assert!(error.contains("other is not a source tree of example.org/hello/cmd/hello"), "{error}");
    // `go` could build the package from this module folder too, but not from the folder's own source.
    let go_mod = fs::read_to_string(fixture.dir.join("components/hello/go.mod")).unwrap();
    fixture.write("elsewhere/go.mod", &go_mod.replace("./", "../components/hello/"));
    let error = fixture.build(&host(), Source::Checkout(fixture.dir.join("elsewhere"))).unwrap_err();
    assert!(error.contains("`go list` finds it in"), "{error}");
}

/// Like Kubernetes' own repository: a workspace whose libraries are folders below the main module.
#[test]
fn tagged_workspace_has_the_tag_as_version() {
    let fixture = Fixture::new("workspace");
    fixture.write("tree/go.work", "go 1.21\n\nuse (\n\t.\n\t./staging/lib\n)\n");
    fixture.write(
        "tree/go.mod",
        "module example.org/hello\n\ngo 1.21\n\nrequire example.org/lib v0.0.0\n\n\
         replace example.org/lib => ./staging/lib\n",
    );
    fixture.write(
        "tree/cmd/hello/main.go",
        "package main\n\nimport \"example.org/lib\"\n\nvar version string\n\nfunc main() { println(version, lib.Name) }\n",
    );
    fixture.write("tree/staging/lib/go.mod", "module example.org/lib\n\ngo 1.21\n");
    fixture.write("tree/staging/lib/lib.go", "package lib\n\nconst Name = \"staged\"\n");
    let shell = Shell::new().unwrap();
    let tree = fixture.dir.join("tree");
    for step in ["init", "add .", "-c user.name=t -c user.email=t@example.org commit -m one", "tag v1.99.0"] {
        let words = step.split(' ');
        let git = cmd!(shell, "git -C {tree} {words...}").env("GIT_CONFIG_GLOBAL", "/dev/null");
        sys::exec::run(git, LONG).unwrap();
    }
    let built = fixture.build(&host(), Source::Checkout(tree)).unwrap();
    assert_eq!(built.version, "v1.99.0");
    assert_eq!(printed(&built.path), "v1.99.0 staged");
}

#[test]
fn unknown_component_is_reported_with_the_known_ones() {
    let fixture = Fixture::new("names");
    let only = ["etcd".to_owned()];
    let error = fixture.with(&target(&host()), Source::Module(None), Some(&only), build).unwrap_err().to_string();
    assert_eq!(error, "unknown component `etcd`: the components are hello, extra");
}

#[test]
fn unavailable_release_is_named() {
    let fixture = Fixture::new("release");
    let error = fixture.build(&host(), Source::Module(Some("v9.9.9".into()))).unwrap_err();
    for part in ["module:v9.9.9", "failed to resolve example.org/hello@v9.9.9", "GOPROXY=off"] {
        assert!(error.contains(part), "`{part}` is missing in: {error}");
    }
}

/// A pinned minor has its own folder and version; the set's commit belongs only to the default minor.
#[test]
fn minor_is_built_from_its_own_folder() {
    let mut fixture = Fixture::new("minor");
    let pin = |minor: &str, version: &str, module: &str| Release {
        minor: minor.into(),
        version: version.into(),
        module: module.into(),
        experimental_flags: Vec::new(),
        unknown_values: Vec::new(),
    };
    let set = &mut fixture.components.sets[0];
    set.releases = vec![pin("1.2", "v1.2.3", "hello"), pin("1.1", "v1.1.7", "hello-1.1")];
    set.commit = Some("0123456789abcdef0123456789abcdef01234567".into());
    set.ldflags = vec!["-X main.version={version}/{commit}".into()];
    fixture.write(
        "components/hello-1.1/go.mod",
        "module components/hello-1.1\n\ngo 1.21\n\nrequire example.org/hello v1.1.7\n\n\
         replace example.org/hello => ../hello/source\n",
    );
    let built = |source: &str| {
        let built = fixture.build(&host(), source.parse().unwrap())?;
        Ok::<_, String>((built.version, printed(&built.path)))
    };
    let of_default = ("v1.2.3".to_owned(), "v1.2.3/0123456789abcdef0123456789abcdef01234567".to_owned());
    let of_other = ("v1.1.7".to_owned(), "v1.1.7/unknown".to_owned());
    for (source, expected) in [
        ("module", &of_default),
        ("1.2", &of_default),
        ("1.1", &of_other),
        ("module:v1.1", &of_other),
        ("1.1.7", &of_other),
    ] {
        assert_eq!(&built(source).unwrap(), expected, "{source}");
    }
    let error = built("1.0").unwrap_err();
    assert!(error.contains("no Go module pins hello v1.0; the pinned minors are 1.2, 1.1"), "{error}");
    let error = built("1.1.9").unwrap_err();
    assert!(error.contains("failed to resolve example.org/hello@v1.1.9"), "{error}");
}

#[test]
fn two_concurrent_builders_get_the_same_entry() {
    let fixture = Fixture::new("twice");
    let arch = host();
    let both: Vec<Artifact> = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| fixture.module(&arch).unwrap()));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!((&both[0].path, &both[0].sha256), (&both[1].path, &both[1].sha256));
    assert!(matches!(fixture.module(&arch).unwrap().step, BuildStep::Hit { .. }));
}
