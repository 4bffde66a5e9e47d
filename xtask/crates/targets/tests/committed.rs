//! The committed files: they load, lookups work, and every mistake in them is noticed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_yaml::{Mapping, Value};
use targets::{Catalogue, Files, table};

/// Optional keys. Deleting any other key must be an error that names it.
const OPTIONAL: &str = "\
    apiserver apiservers arch arguments base checkout_dir ci classes commit component_env control controllers dashboard differences earlier early \
    emulator entrypoint env environment experimental experimental_flags extensions factor files firmware flag flags follows foreign go_env group \
    go groups harness has_node held hosts hwcap hwcap2 kubernetes lost_timers machine machine_cpu members minimum no_processors official optional own_ca plugins \
    prefix previous profile proposed provider reason relays releases seldom server shards since size spare staging store \
    store_version stores supported_minors tags then tools tried unknown_values user user_cpu values variants warm wrapper";

/// A Kubernetes object, whose fields these files do not define.
const ANYTHING: &str = "object";

/// Mappings whose keys are not fields: any key may be missing.
const FREE: [&str; 11] =
    ["apiserver", "cases", "environment", "etcd", "files", "flags", "go_env", "idle", "links", "programs", "tags"];

#[test]
fn the_committed_files_load() {
    let catalogue = Catalogue::load(&folder()).unwrap_or_else(|invalid| panic!("{invalid}"));
    let names: Vec<_> = catalogue.targets.iter().map(|target| format!("architectures/{}.yaml", target.name)).collect();
    assert_eq!(names, target_files());
    assert_eq!(catalogue.resources("v1.37.2").unwrap().len(), 64);
    assert_eq!(catalogue.resources("v1.36.3").unwrap().len(), 60);
    assert_eq!(catalogue.resources("v1.35.4").unwrap().len(), 58);
    assert_eq!(catalogue.resources("1.34").unwrap().len(), 58);
    // Names that controllers derive (`text`) are of one release.
    let stored = |minor| catalogue.golden(minor).iter().filter(|row| row.encoding != "text").collect::<Vec<_>>();
    assert_eq!([stored("1.34"), stored("1.35"), stored("1.37")], ["1.36"; 3].map(stored));
}

#[test]
fn releases_without_a_table_are_nearest_to_an_older_one() {
    let catalogue = Catalogue::load(&folder()).unwrap();
    let nearest = |version| catalogue.nearest_resources(version).0;
    let versions = ["v1.36.9", "v1.33.2", "v1.99.0-alpha.1", "1.100", "unknown"];
    assert_eq!(versions.map(nearest), ["1.36", "1.34", "1.37", "1.37", "1.37"]);
}

#[test]
fn tables_of_releases_contain_the_rows_of_their_base() {
    let catalogue = Catalogue::load(&folder()).unwrap();
    let stored_as = |minor, plural: &str| {
        let row = catalogue.resources(minor).unwrap().iter().find(|row| row.resource.plural == plural);
        row.map(|row| row.stored_as.as_str())
    };
    let of = |plural| ["1.34", "1.35", "1.36", "1.37"].map(|minor| stored_as(minor, plural).unwrap_or("none"));
    assert_eq!(of("configmaps"), ["v1/ConfigMap"; 4]);
    let (old, new) = ("resource.k8s.io/v1beta2/DeviceClass", "resource.k8s.io/v1/DeviceClass");
    assert_eq!(of("deviceclasses"), [old, new, new, new]);
    let policy = |version| format!("admissionregistration.k8s.io/{version}/MutatingAdmissionPolicy");
    let (old, new) = (policy("v1beta1"), policy("v1"));
    assert_eq!(of("mutatingadmissionpolicies"), ["none", "none", &old, &new]);
}

#[test]
fn other_common_names_are_accepted() {
    let catalogue = Catalogue::load(&folder()).unwrap();
    for (name, expected) in [
        ("amd64", "amd64"),
        ("x86_64", "amd64"),
        ("aarch64", "arm64"),
        ("ppc64el", "ppc64le"),
        ("riscv64", "riscv64"),
        ("loongarch64", "loong64"),
    ] {
        assert_eq!(catalogue.target(name).unwrap().name, expected);
    }
    for (machine, expected) in [
        ("x86_64", "amd64"),
        ("aarch64", "arm64"),
        ("ppc64le", "ppc64le"),
        ("riscv64", "riscv64"),
        ("loongarch64", "loong64"),
    ] {
        assert_eq!(catalogue.host_target(machine).unwrap().name, expected);
    }
}

#[test]
fn unknown_name_is_answered_with_the_valid_ones() {
    let catalogue = Catalogue::load(&folder()).unwrap();
    let architectures = target_files().iter().map(|name| name_with_aliases(name)).collect::<Vec<_>>().join(", ");
    for part in ["amd64 (x86_64, x86-64), ", "ppc64le (ppc64el, powerpc64le), "] {
        assert!(architectures.contains(part), "{architectures}");
    }
    for (message, expected) in [
        (
            catalogue.target("riscv").unwrap_err().to_string(),
            format!("unknown architecture `riscv` (did you mean `riscv64`?); valid: {architectures}"),
        ),
        (
            catalogue.target("vax").unwrap_err().to_string(),
            format!("unknown architecture `vax`; valid: {architectures}"),
        ),
        (
            catalogue.host_target("riscv32").unwrap_err().to_string(),
            format!("unknown host machine `riscv32`; valid: {architectures}"),
        ),
        (
            catalogue.profile("split-event").unwrap_err().to_string(),
            "unknown profile `split-event` (did you mean `split-events`?); valid: default, json, yaml, prefix, \
             split-events, encrypted, short-events, disruptive, reflagged, no-cache, ha, skew, upgrade, stress, node"
                .into(),
        ),
        (
            catalogue.set("consul").unwrap_err().to_string(),
            "unknown component set `consul`; valid: kubernetes, etcd, kms, faults, client, differential, guest, kine, \
             containerd, cni-plugins, cri-tools, coredns, kind, upstream, pause"
                .into(),
        ),
        (
            catalogue.component("apiserver").unwrap_err().to_string(),
            "unknown component `apiserver` (did you mean `kube-apiserver`?); valid: kube-apiserver, \
             kube-controller-manager, kube-scheduler, kube-proxy, kubelet, kubeadm, kubectl, etcd, etcdctl, etcdutl, \
             kms-plugin, faults, client, differential, init, kine, containerd, containerd-shim-runc-v2, ctr, bandwidth, \
             bridge, firewall, host-local, loopback, portmap, ptp, crictl, coredns, kind, e2e, agnhost, sample-apiserver, pause"
                .into(),
        ),
        (
            catalogue.resources("v1.33.0").unwrap_err().to_string(),
            "unknown Kubernetes release `v1.33.0`; valid: 1.34, 1.35, 1.36, 1.37".into(),
        ),
        (
            catalogue.pinned("kubernetes", "v1.33").unwrap_err().to_string(),
            "unknown release `kubernetes 1.33`; valid: 1.37, 1.36, 1.35, 1.34".into(),
        ),
        (
            catalogue.pinned("etcd", "v2.3").unwrap_err().to_string(),
            "unknown release `etcd 2.3`; valid: 3.7, 3.6, 3.5".into(),
        ),
    ] {
        assert_eq!(message, expected);
    }
}

#[test]
fn component_is_found_with_its_set() {
    let catalogue = Catalogue::load(&folder()).unwrap();
    let (set, component) = catalogue.component("etcdctl").unwrap();
    assert_eq!((set.name.as_str(), component.optional), ("etcd", true));
    assert_eq!(catalogue.set("kubernetes").unwrap().components[0].name, "kube-apiserver");
    assert_eq!(catalogue.profile("prefix").unwrap().prefix, "/dev/20230902/0952");
}

#[test]
fn table_is_aligned() {
    let text = table(&Catalogue::load(&folder()).unwrap());
    let expected = "\
NAME     TITLE                         ALIASES               EMULATOR                                            ELF MACHINE                     CI
amd64    x86, 64 bit                   x86_64, x86-64        qemu-x86_64 or qemu-x86_64-static                   62 (64 bit, little-endian)  native on github-amd64
arm64    Arm, 64 bit                   aarch64               qemu-aarch64 or qemu-aarch64-static                 183 (64 bit, little-endian)  native on github-arm64
loong64  LoongArch, 64 bit             loongarch64           qemu-loongarch64 or qemu-loongarch64-static >= 10.0  258 (64 bit, little-endian)  vm on github-amd64, experimental
ppc64le  POWER, 64 bit, little-endian  ppc64el, powerpc64le  qemu-ppc64le or qemu-ppc64le-static                 21 (64 bit, little-endian)  vm on github-amd64
riscv64  RISC-V, 64 bit                riscv64gc             qemu-riscv64 or qemu-riscv64-static                 243 (64 bit, little-endian)  vm on github-amd64
s390x    IBM Z, 64 bit, big-endian     -                     qemu-s390x or qemu-s390x-static                     22 (64 bit, big-endian)     vm on github-amd64
";
    let rows = squeezed(&text);
    for row in squeezed(expected) {
        assert!(rows.contains(&row), "{row:?} is not in\n{text}");
    }
    let names: Vec<String> = rows.iter().skip(1).map(|row| format!("architectures/{}.yaml", row[0])).collect();
    assert_eq!(names, target_files());
    let column = |line: &str, cell: &str| line.find(cell).unwrap();
    let heading = text.lines().next().unwrap();
    for line in text.lines().skip(1) {
        assert_eq!(column(line, "qemu-"), column(heading, "EMULATOR"), "{text}");
        assert_eq!(line, line.trim_end());
    }
}

/// An unknown key is refused in every mapping of every file.
#[test]
fn unknown_key_is_refused_everywhere() {
    let mut tried = 0;
    for (name, tree) in trees() {
        let paths = mappings(&tree);
        let mut broken = tree.clone();
        for path in &paths {
            mapping_at(&mut broken, path).insert("zz_unknown".into(), "x".into());
        }
        let mut named = problems(&name, &broken);
        for path in paths {
            let key = Step::key(&path, "zz_unknown");
            if !named.contains(&key) {
                // Rules that compare values apply only to files whose keys are all known.
                let mut broken = tree.clone();
                mapping_at(&mut broken, &path).insert("zz_unknown".into(), "x".into());
                named.extend(problems(&name, &broken));
            }
            assert!(named.contains(&key), "{name}: {key} is not named in {named:?}");
            tried += 1;
        }
    }
    assert!(tried > 150, "only {tried} mappings were tried");
}

/// A required key that is deleted is named, in one mapping of each shape.
#[test]
fn deleted_key_is_reported_as_missing() {
    // The keys of these mappings are names that the file defines.
    let by_arch = ["component_env", "downloads", "default_labels", "variants"];
    let mut tried = BTreeSet::new();
    for (name, tree) in trees() {
        for path in mappings(&tree) {
            if path.iter().any(|step| matches!(step, Step::Key(key) if FREE.contains(&key.as_str()))) {
                continue;
            }
            let keys: Vec<String> = mapping_at(&mut tree.clone(), &path).keys().map(text).collect();
            for key in keys {
                // `resources` is optional in a store only, where the rules require it from the second store on.
                let in_second_store = path.ends_with(&[Step::Key("stores".into()), Step::Index(1)]);
                // A variant may have another kernel; a machine must have one.
                let of_variant = path.first() == Some(&Step::Key("variants".into())) && key == "kernel";
                // Any failure may be the defect of a release; elsewhere such a key is required.
                let of_regression = path.first() == Some(&Step::Key("regressions".into())) && key == "says";
                // The kind of a native job; elsewhere such a key is required.
                let of_way = path.contains(&Step::Key("ways".into())) && key == "programs";
                // The flags of a variant of an apiserver.
                let is_flag =
                    matches!(path.as_slice(), [.., Step::Key(variants), Step::Key(_)] if variants == "variants");
                if OPTIONAL.split(' ').any(|optional| optional == key)
                    || in_second_store
                    || of_variant
                    || of_regression
                    || of_way
                    || is_flag
                    || by_arch.iter().any(|name| path.ends_with(&[Step::Key((*name).into())]))
                {
                    continue;
                }
                let deleted = [path.as_slice(), &[Step::Key(key.clone())]].concat();
                if tried.insert(shape(&name, &deleted)) {
                    let mut broken = tree.clone();
                    mapping_at(&mut broken, &path).remove(key.as_str());
                    let (named, deleted) = (problems(&name, &broken), Step::text(&deleted));
                    assert!(named.contains(&deleted), "{name}: {deleted} is not named in {named:?}");
                }
            }
        }
    }
    assert!(tried.len() > 200, "only {} keys were tried", tried.len());
}

/// A value of another type is refused at every place of every file.
#[test]
fn value_of_another_type_is_refused() {
    let mut tried = 0;
    for (name, tree) in trees() {
        let places = leaves(&tree);
        for wrong in [Value::Null, Value::from(-1), Value::Sequence(vec![]), Value::Mapping(Mapping::new())] {
            let mut broken = tree.clone();
            let mut changed = Vec::new();
            for path in &places {
                let slot = at(&mut broken, path);
                if std::mem::discriminant(slot) != std::mem::discriminant(&wrong) || slot.is_number() {
                    *slot = wrong.clone();
                    changed.push(path);
                }
            }
            // All at once: a run of the loader for each took minutes.
            let named = problems(&name, &broken);
            for path in changed.into_iter().map(|path| Step::text(path)) {
                assert!(named.contains(&path), "{name}: {path} is not named in {named:?}");
                tried += 1;
            }
        }
    }
    assert!(tried > 2000, "only {tried} values were tried");
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Key(String),
    Index(usize),
}

impl Step {
    fn text(path: &[Step]) -> String {
        let mut text = String::new();
        for step in path {
            match step {
                Step::Index(index) => text += &format!("[{index}]"),
                Step::Key(key) if key.contains(['.', '/']) => text += &format!("[{key:?}]"),
                Step::Key(key) if text.is_empty() => text += key,
                Step::Key(key) => text += &format!(".{key}"),
            }
        }
        text
    }

    fn key(path: &[Step], key: &str) -> String {
        Step::text(&[path, &[Step::Key(key.into())]].concat())
    }
}

/// A path without the numbers of elements, with the files of architectures and the tables of resources as one file
/// each. The same code reads all places of a shape; a run of the loader for each took minutes.
fn shape(name: &str, path: &[Step]) -> String {
    let file = name.split_once('/').map_or(name, |(folder, _)| folder);
    let keys = path.iter().map(|step| match step {
        Step::Key(key) => key.as_str(),
        Step::Index(_) => "*",
    });
    std::iter::once(file).chain(keys).collect::<Vec<_>>().join("/")
}

/// The places of this file that the loader names as wrong.
fn problems(name: &str, broken: &Value) -> BTreeSet<String> {
    let mut files = FILES.with(Clone::clone);
    files.insert(name.into(), serde_yaml::to_string(broken).unwrap());
    let Err(invalid) = Catalogue::parse("targets", &files) else { return BTreeSet::new() };
    assert!(invalid.problems.iter().all(|p| p.line > 0 && p.column > 0), "a problem without a position in:\n{invalid}");
    let file = format!("targets/{name}");
    invalid.problems.into_iter().filter(|problem| problem.file == file).map(|problem| problem.path).collect()
}

fn mappings(tree: &Value) -> Vec<Vec<Step>> {
    walk(tree).into_iter().filter(|(_, value)| value.is_mapping()).map(|(path, _)| path).collect()
}

fn leaves(tree: &Value) -> Vec<Vec<Step>> {
    let is_leaf = |value: &Value| !value.is_mapping() && !value.is_sequence();
    walk(tree).into_iter().filter(|(_, value)| is_leaf(value)).map(|(path, _)| path).collect()
}

/// The value and all values below it, each with its path.
fn walk(tree: &Value) -> Vec<(Vec<Step>, &Value)> {
    let below: Vec<(Step, &Value)> = match tree {
        Value::Mapping(entries) => {
            let known = entries.iter().filter(|(key, _)| text(key) != ANYTHING);
            known.map(|(key, value)| (Step::Key(text(key)), value)).collect()
        }
        Value::Sequence(items) => items.iter().enumerate().map(|(i, value)| (Step::Index(i), value)).collect(),
        _ => Vec::new(),
    };
    let below = below.into_iter().flat_map(|(step, value)| {
        walk(value).into_iter().map(move |(path, value)| ([vec![step.clone()], path].concat(), value))
    });
    std::iter::once((Vec::new(), tree)).chain(below).collect()
}

fn at<'a>(tree: &'a mut Value, path: &[Step]) -> &'a mut Value {
    path.iter().fold(tree, |value, step| match step {
        Step::Key(key) => value.get_mut(key.as_str()).unwrap(),
        Step::Index(index) => value.get_mut(*index).unwrap(),
    })
}

fn mapping_at<'a>(tree: &'a mut Value, path: &[Step]) -> &'a mut Mapping {
    at(tree, path).as_mapping_mut().unwrap()
}

fn text(key: &Value) -> String {
    key.as_str().unwrap().to_owned()
}

/// Every file as a tree. The storage table is one tree per row, which the rules treat the same and is much faster.
fn trees() -> Vec<(String, Value)> {
    let mut trees = Vec::new();
    for (name, text) in files().into_iter().filter(|(name, _)| name.ends_with(".yaml")) {
        let tree: Value = serde_yaml::from_str(&text).unwrap();
        match tree.get("resources").and_then(Value::as_sequence) {
            Some(rows) => trees.extend(rows.iter().map(|row| (name.clone(), table_of(row)))),
            None => trees.push((name, tree)),
        }
    }
    trees
}

fn table_of(row: &Value) -> Value {
    Value::Mapping(Mapping::from_iter([("resources".into(), Value::Sequence(vec![row.clone()]))]))
}

thread_local! {
    /// The committed files around the broken one, with a storage table of one row.
    static FILES: Files = {
        let mut files = files();
        let is_events = |tree: &Value| tree["resources"][0]["resource"]["plural"] == "events";
        let (name, table) = trees().into_iter().find(|(name, tree)| name.contains('/') && is_events(tree)).unwrap();
        files.insert(name, serde_yaml::to_string(&table).unwrap());
        files
    };
}

/// The committed files, read without the code under test.
fn files() -> Files {
    let mut names = Vec::new();
    for folder in ["", "architectures/", "resources/"] {
        names.extend(listed(folder).into_iter().filter(|name| name.ends_with(".yaml")));
    }
    // Without the tables of other releases: they have the same keys, and are the largest of all files.
    names.retain(|name| !name.starts_with("resources/") || name == "resources/1.34.yaml");
    for module in ["components/", "programs/"].into_iter().flat_map(listed) {
        let kept = |name: &String| ["go.mod", "go.sum", "tools.go", "main.go"].iter().any(|file| name.ends_with(file));
        names.extend(listed(&format!("{module}/")).into_iter().filter(kept));
    }
    names.into_iter().map(|name| (name.clone(), fs::read_to_string(folder().join(name)).unwrap())).collect()
}

/// The names in a folder, with the folder before them: "architectures/riscv64.yaml". Sorted.
fn listed(below: &str) -> Vec<String> {
    let entries = fs::read_dir(folder().join(below)).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| format!("{below}{}", entry.unwrap().file_name().to_str().unwrap())).collect();
    names.sort();
    names
}

/// The files of architectures.
fn target_files() -> Vec<String> {
    let names: Vec<String> = listed("architectures/").into_iter().filter(|name| name.ends_with(".yaml")).collect();
    assert!(names.len() >= 5, "only {names:?}");
    names
}

/// "riscv64 (riscv64gc)".
fn name_with_aliases(file: &str) -> String {
    let tree: Value = serde_yaml::from_str(&fs::read_to_string(folder().join(file)).unwrap()).unwrap();
    let aliases: Vec<String> = tree["aliases"].as_sequence().unwrap().iter().map(text).collect();
    let name = text(&tree["name"]);
    if aliases.is_empty() { name } else { format!("{name} ({})", aliases.join(", ")) }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../targets").canonicalize().unwrap()
}

fn squeezed(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect()
}
