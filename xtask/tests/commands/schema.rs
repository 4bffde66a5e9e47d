//! The decoder of stored values against upstream's own test data: for every kind of every pinned release, the module
//! `k8s.io/api` has the same object as protobuf and as JSON. Reads the module cache, and downloads what it lacks.

use std::path::{Path, PathBuf};

use build::{ApiModule, ProtoPackage, SourceFile, api_modules, proto_packages};
use judge::decode;
use judge::schema::{Package, Schema, Source, decode_message, decode_object};
use serde_json::Value;
use targets::Catalogue;

/// Kinds in the test data of one release; fewer would mean that the test looks in the wrong place.
const FEWEST_KINDS: usize = 150;

const WATCH_EVENT: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.WatchEvent";

#[test]
fn every_kind_decodes_to_the_json_of_upstream() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../targets");
    let catalogue = Catalogue::load(&targets).unwrap();
    let set = catalogue.components.sets.iter().find(|set| set.name == "kubernetes").unwrap();
    assert!(!set.releases.is_empty());
    for release in &set.releases {
        let modules = api_modules(&targets.join(set.folder(&release.module))).unwrap();
        let schema = schema(&proto_packages(&modules).unwrap());
        let (mut kinds, mut wrong) = (0, Vec::new());
        for file in files(&api(&modules).join("testdata/HEAD")) {
            let expected: Value = serde_json::from_slice(&std::fs::read(file.with_extension("json")).unwrap()).unwrap();
            kinds += 1;
            let value = std::fs::read(&file).unwrap();
            // Not an object: its envelope has no kind.
            let decoded = match file.file_name().is_some_and(|name| name == "core.v1.WatchEvent.pb") {
                true => decode_message(&schema, WATCH_EVENT, decode::envelope(&value).unwrap().raw),
                false => decode_object(&schema, &value),
            };
            match decoded {
                Ok(decoded) if decoded.value == expected && decoded.unknown.is_empty() => {}
                Ok(decoded) => {
                    wrong.push(format!("{}: {:?}", file.display(), decoded.unknown));
                    differences("", &expected, &decoded.value, &mut wrong);
                }
                Err(why) => wrong.push(format!("{}: {why}", file.display())),
            }
        }
        assert!(kinds >= FEWEST_KINDS, "{kinds} kinds in {}", release.version);
        assert!(
            wrong.is_empty(),
            "{}:\n{}",
            release.version,
            wrong.iter().take(40).cloned().collect::<Vec<_>>().join("\n")
        );
    }
}

fn schema(packages: &[ProtoPackage]) -> Schema {
    fn source(file: &SourceFile) -> Source<'_> {
        Source { name: &file.name, text: &file.text }
    }
    fn package(found: &ProtoPackage) -> Package<'_> {
        Package { proto: source(&found.proto), go: found.go.iter().map(source).collect() }
    }
    Schema::read(&packages.iter().map(package).collect::<Vec<_>>()).unwrap()
}

fn api(modules: &[ApiModule]) -> &Path {
    &modules.iter().find(|module| module.path == "k8s.io/api").unwrap().dir
}

/// All protobuf values in the folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "pb"));
    files.sort();
    files
}

fn differences(path: &str, expected: &Value, found: &Value, out: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            let names: std::collections::BTreeSet<_> = expected.keys().chain(found.keys()).collect();
            let of = |object: &serde_json::Map<String, Value>, name| object.get(name).cloned().unwrap_or(Value::Null);
            for name in names {
                differences(&format!("{path}.{name}"), &of(expected, name), &of(found, name), out);
            }
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
                differences(&format!("{path}[{at}]"), expected, found, out);
            }
        }
        _ if expected != found => out.push(format!("  {path}: {expected}, decoded {found}")),
        _ => {}
    }
}
