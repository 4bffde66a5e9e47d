//! The rules as pure functions over texts, with unit tests at the end. This module reads no files.

use std::collections::{BTreeMap, BTreeSet};

/// A file of the tree; the path is relative to its root and has forward slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Maximum number of lines; split longer files. Only tables of checks should come near it; aim for 300.
const LONGEST: usize = 500;

/// The fields of a row of the table of checks that the rule reads.
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) requirement: &'static str,
    pub(crate) source: &'static str,
}

pub(crate) fn module_doc(file: &File) -> Option<String> {
    let documented = file.text.starts_with("//! ");
    (!documented).then(|| fault(file, 1, "the file must begin with `//! ` and describe what it contains"))
}

/// Whether the path is the file of an architecture.
pub(crate) fn is_target(path: &str) -> bool {
    path.starts_with("targets/architectures/") && path.ends_with(".yaml")
}

/// The values of `name` and `aliases` in a target file, in lower case.
pub(crate) fn names_of_target(text: &str) -> Vec<String> {
    let value = |field: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
        line.split(" #").next().unwrap_or_default()
    };
    let words = format!("{} {}", value("name:"), value("aliases:"));
    let words = words.split(|c: char| !(c.is_ascii_alphanumeric() || "_-".contains(c)));
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

pub(crate) fn architecture_names(file: &File, names: &BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    for (line, text) in numbered(file) {
        let text = text.to_lowercase();
        if let Some(name) = names.iter().find(|name| text.contains(*name)) {
            let rule = format!("`{name}` names an architecture: facts about one belong in targets/architectures/");
            faults.push(fault(file, line, &rule));
        }
    }
    faults
}

/// The sources with their test modules blanked out, so that line numbers do not change; without files that are only
/// tests.
pub(crate) fn code_outside_tests(sources: &[File]) -> Vec<File> {
    let mut tests: BTreeSet<String> = BTreeSet::new();
    let mut code = Vec::new();
    for file in sources {
        let (text, modules) = without_tests(&file.text);
        let folder = module_folder(&file.path);
        for module in modules {
            tests.insert(format!("{folder}/{module}.rs"));
            tests.insert(format!("{folder}/{module}/"));
        }
        code.push(File { path: file.path.clone(), text });
    }
    code.retain(|file| {
        let in_tests = file.path.contains("/tests/") || file.path.starts_with("tests/");
        !in_tests && !tests.iter().any(|test| file.path.starts_with(test))
    });
    code
}

/// The folder of the modules that a file declares: `src/lib.rs` -> `src`, `src/junit.rs` -> `src/junit`.
fn module_folder(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        _ => path.trim_end_matches(".rs").to_owned(),
    }
}

/// Blanks out items after `#[cfg(test)]`; also returns the modules declared there that are separate files.
fn without_tests(text: &str) -> (String, Vec<String>) {
    let mut kept = Vec::new();
    let mut modules = Vec::new();
    // The line that ends the current test item.
    let mut end: Option<String> = None;
    let mut waiting = false;
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indent = &line[..line.len() - trimmed.len()];
        if let Some(last) = &end {
            if line == last {
                end = None;
            }
            kept.push("");
        } else if waiting {
            kept.push("");
            waiting = trimmed.starts_with("#[");
            if !waiting && trimmed.ends_with('{') {
                end = Some(format!("{indent}}}"));
            } else if let Some(module) = trimmed.strip_suffix(';').and_then(|line| line.split("mod ").nth(1)) {
                modules.push(module.to_owned());
            }
        } else if trimmed.starts_with("#[cfg(test)]") {
            kept.push("");
            waiting = true;
        } else {
            kept.push(line);
        }
    }
    (kept.join("\n"), modules)
}

pub(crate) fn crate_of(path: &str) -> &str {
    path.trim_end_matches("/Cargo.toml").rsplit('/').next().unwrap_or(path)
}

/// Checks all sections of dependencies, including those of tests and build scripts.
pub(crate) fn edges(file: &File, allowed: &[(&str, &[&str])]) -> Vec<String> {
    let name = crate_of(&file.path);
    let Some((_, allowed_here)) = allowed.iter().find(|(of, _)| *of == name) else {
        let rule = format!("the allowed dependencies of `{name}` are unknown: add it to EDGES in xtask/tests/tidy");
        return vec![fault(file, 1, &rule)];
    };
    let mut faults = Vec::new();
    let mut in_dependencies = false;
    for (line, text) in numbered(file) {
        let mut used = text.split(['.', '=', ' ']).next().unwrap_or_default();
        if let Some(section) = text.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            in_dependencies = section.ends_with("dependencies");
            // `[dependencies.NAME]`.
            used = section.rsplit_once("dependencies.").map_or("", |(_, name)| name);
        } else if !in_dependencies {
            continue;
        }
        let ours = allowed.iter().any(|(of, _)| *of == used);
        if ours && !allowed_here.contains(&used) {
            let list = if allowed_here.is_empty() { "none of our crates".into() } else { allowed_here.join(", ") };
            faults.push(fault(file, line, &format!("`{name}` must not depend on `{used}`; it may use {list}")));
        }
    }
    faults
}

pub(crate) fn check_rows(rows: &[Row]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        let mut rule = |rule: &str| faults.push(format!("check `{}`: {rule}", row.id));
        *times.entry(row.id).or_default() += 1;
        if times[row.id] == 2 {
            rule("the id occurs twice in the table, but reports and histories identify a check by its id");
        }
        let word =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || "-0123456789".contains(c));
        if !row.id.split_once('.').is_some_and(|(suite, name)| word(suite) && word(name)) {
            rule("an id is `suite.name` in lower case, digits and hyphens");
        }
        if row.requirement.split_whitespace().count() < 4 || !row.requirement.ends_with('.') {
            rule("the requirement must be a sentence");
        }
        if row.source.trim().is_empty() {
            rule("the source of the requirement is missing");
        }
    }
    faults
}

pub(crate) fn length(file: &File) -> Option<String> {
    let lines = file.text.lines().count();
    let rule = format!("{lines} lines, more than {LONGEST}: split the file");
    (lines > LONGEST).then(|| fault(file, LONGEST + 1, &rule))
}

pub(crate) fn ignored_tests(file: &File) -> Vec<String> {
    let ignored = numbered(file).filter(|(_, text)| text.trim_start().starts_with("#[ignore"));
    let rule = "an ignored test proves nothing: repair it, or make it skip and name what it needs";
    ignored.map(|(line, _)| fault(file, line, rule)).collect()
}

pub(crate) fn trailing_blanks(file: &File) -> Vec<String> {
    let mut faults: Vec<String> = numbered(file)
        .filter(|(_, text)| text.ends_with([' ', '\t', '\r']))
        .map(|(line, _)| fault(file, line, "the line ends with a blank"))
        .collect();
    if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
        faults.push(fault(file, file.text.lines().count(), "a file ends with exactly one line end"));
    }
    faults
}

/// Finds home folders, workspaces of build machines, and `here`, the path of this checkout.
pub(crate) fn machine_paths(file: &File, here: Option<&str>) -> Vec<String> {
    let places = ["/home", "/Users", "/root", "/work", "/builds"].iter().copied().chain(here);
    let places: Vec<&str> = places.collect();
    let mut faults = Vec::new();
    for (line, text) in numbered(file) {
        if let Some(place) = places.iter().find(|place| has_path(text, place)) {
            let rule = format!("`{place}/...` is a path of one machine: use a relative path, or pass it in");
            faults.push(fault(file, line, &rule));
        }
    }
    faults
}

/// Whether the text contains a path that begins with `place`: not as a part of a longer path, and with more text after
/// it.
fn has_path(text: &str, place: &str) -> bool {
    text.match_indices(place).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let inner = before.is_some_and(|c| c.is_alphanumeric() || "_-./}*)".contains(c));
        let mut after = text[at + place.len()..].chars();
        !inner && after.next() == Some('/') && after.next().is_some_and(|c| c.is_alphanumeric() || "._".contains(c))
    })
}

/// Applies `rule` to each line of shell; a line that ends with `\` is joined with the next one.
pub(crate) fn unlocked(file: &File, rule: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let (mut faults, mut joined, mut first) = (Vec::new(), String::new(), 1);
    for (line, text) in numbered(file) {
        if joined.is_empty() {
            first = line;
        }
        joined.push_str(text.strip_suffix('\\').unwrap_or(text));
        if !text.ends_with('\\') {
            faults.extend(rule(&joined).map(|rule| fault(file, first, &rule)));
            joined.clear();
        }
    }
    faults
}

fn numbered(file: &File) -> impl Iterator<Item = (usize, &str)> {
    file.text.split('\n').enumerate().map(|(index, line)| (index + 1, line))
}

fn fault(file: &File, line: usize, rule: &str) -> String {
    format!("{}:{line}: {rule}", file.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    fn names() -> BTreeSet<String> {
        BTreeSet::from(["riscv".to_owned(), "x86-64".to_owned()])
    }

    #[test]
    fn a_module_doc_is_the_first_line() {
        assert_eq!(module_doc(&file("a.rs", "//! What it is.\nuse x;\n")), None);
        for bad in ["", "use x;\n//! Late.\n", "\n//! Late.\n", "// No doc.\n", "//!\n"] {
            let fault = module_doc(&file("x/a.rs", bad)).unwrap_or_default();
            assert!(fault.starts_with("x/a.rs:1: "), "{bad:?}: {fault}");
        }
    }

    #[test]
    fn architectures_are_found_in_code_and_comments_but_not_in_tests() {
        let text =
            "//! For RISCV64.\n#[cfg(test)]\nmod tests {\n    fn f() { riscv() }\n}\nconst X: &str = \"x86-64\";\n";
        let code = code_outside_tests(&[file("src/a.rs", text)]);
        let faults = architecture_names(&code[0], &names());
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].starts_with("src/a.rs:1: `riscv` names"), "{faults:?}");
        assert!(faults[1].starts_with("src/a.rs:6: `x86-64` names"), "{faults:?}");
    }

    #[test]
    fn test_code_is_excluded() {
        let declaring =
            "//! A.\n#[cfg(test)]\n#[path = \"x\"]\nmod tests;\n#[cfg(test)]\npub(super) mod fixture;\nmod b;\n";
        let files =
            ["src/a.rs", "src/a/tests.rs", "src/a/fixture.rs", "src/a/fixture/more.rs", "src/a/b.rs", "tests/t.rs"];
        let files: Vec<File> = files.iter().map(|path| file(path, declaring)).collect();
        let left: Vec<String> = code_outside_tests(&files).into_iter().map(|file| file.path).collect();
        assert_eq!(left, ["src/a.rs", "src/a/b.rs"]);
        let (text, modules) = without_tests("a\n    #[cfg(test)]\n    fn f() {\n        riscv\n    }\nb\n");
        assert_eq!((text.as_str(), modules.len()), ("a\n\n\n\n\nb", 0));
        assert_eq!(module_folder("src/lib.rs"), "src");
    }

    #[test]
    fn architecture_names_come_from_the_target_files() {
        assert_eq!(
            names_of_target("# x\nname: riscv64\ntitle: y\naliases: [riscv64gc, A-1]  # and why\n"),
            ["riscv64", "riscv64gc", "a-1"]
        );
        assert!(is_target("targets/architectures/new.yaml"));
        for other in ["targets/components.yaml", "new.yaml", "targets/architectures/a.lock"] {
            assert!(!is_target(other), "{other}");
        }
    }

    #[test]
    fn dependencies_that_are_not_allowed_are_faults() {
        let allowed: &[(&str, &[&str])] = &[("suite", &["model"]), ("model", &[]), ("boot", &["model"])];
        let check = |path: &str, text: &str| edges(&file(path, text), allowed);
        let good = "[package]\nname = \"suite\"\nboot = 1\n[dependencies]\nanyhow = \"1\"\nmodel.workspace = true\n";
        assert_eq!(check("crates/suite/Cargo.toml", good), Vec::<String>::new());
        for (line, bad) in [
            (2, "[dependencies]\nboot.workspace = true\n"),
            (2, "[dependencies]\nboot = { path = \"../boot\" }\n"),
            (3, "[dependencies]\nmodel.workspace = true\nboot.workspace = true\n"),
            (2, "[dev-dependencies]\nboot.workspace = true\n"),
            (2, "[build-dependencies]\nboot.workspace = true\n"),
            (2, "[target.'cfg(unix)'.dependencies]\nboot.workspace = true\n"),
            (1, "[dependencies.boot]\npath = \"../boot\"\n"),
        ] {
            let faults = check("crates/suite/Cargo.toml", bad);
            let expected = format!("crates/suite/Cargo.toml:{line}: `suite` must not depend on `boot`");
            assert!(faults.len() == 1 && faults[0].starts_with(&expected), "{bad}: {faults:?}");
        }
        assert_eq!(check("crates/model/Cargo.toml", "[dependencies]\nboot.workspace = true\n").len(), 1);
        assert!(check("crates/new/Cargo.toml", good)[0].contains("EDGES"), "a crate that is not in the list");
    }

    #[test]
    fn check_rows_without_a_unique_id_requirement_or_source_are_faults() {
        let row = |id, requirement, source| Row { id, requirement, source };
        let good = || row("watch.ordered-2", "Revisions of events grow.", "KEP-1");
        assert_eq!(check_rows(&[good()]), Vec::<String>::new());
        assert_eq!(check_rows(&[good(), good(), good()]).len(), 1);
        for bad in [
            row("ordered", "Revisions of events grow.", "KEP-1"),
            row("watch.", "Revisions of events grow.", "KEP-1"),
            row("watch.Ordered", "Revisions of events grow.", "KEP-1"),
            row("watch.a.b", "Revisions of events grow.", "KEP-1"),
            row("watch.a", "", "KEP-1"),
            row("watch.a", "Ordered.", "KEP-1"),
            row("watch.a", "Revisions of events grow", "KEP-1"),
            row("watch.a", "Revisions of events grow.", " "),
        ] {
            let id = bad.id;
            assert_eq!(check_rows(&[bad]).len(), 1, "{id}");
        }
    }

    #[test]
    fn long_files_ignored_tests_and_blanks_are_faults() {
        let lines = |n: usize| file("a.rs", &"x\n".repeat(n));
        assert_eq!(length(&lines(LONGEST)), None);
        assert!(length(&lines(LONGEST + 1)).unwrap_or_default().starts_with("a.rs:501: 501 lines"));

        let marker = ["#[ig", "nore = \"slow\"]"].concat();
        let faults = ignored_tests(&file("a.rs", &format!("#[test]\n    {marker}\nfn f() {{}}\n")));
        assert!(faults.len() == 1 && faults[0].starts_with("a.rs:2: "), "{faults:?}");
        assert!(ignored_tests(&file("a.rs", "// what `git` ignores\n")).is_empty());

        assert!(trailing_blanks(&file("a", "x\n\ny\n")).is_empty());
        for (line, bad) in [(1, "x \n"), (2, "x\ny\t\n"), (1, "x\r\n"), (1, "x"), (2, "x\n\n"), (1, " \n")] {
            let faults = trailing_blanks(&file("a", bad));
            assert!(faults.len() == 1 && faults[0].starts_with(&format!("a:{line}: ")), "{bad:?}: {faults:?}");
        }
    }

    #[test]
    fn continued_shell_lines_are_joined() {
        let rule = |line: &str| line.contains("bad").then(|| line.to_owned());
        let found = unlocked(&file("a", "good\nx \\\n  bad \\\n  y\nbad\n"), rule);
        assert_eq!(found, ["a:2: x   bad   y", "a:5: bad"]);
    }

    #[test]
    fn paths_of_one_machine_are_faults() {
        let below = |place: &str, rest: &str| [place, "/", rest].concat();
        for bad in [below("/home", "me/x"), below("/root", ".cache"), format!("see `{}`", below("/work", "main"))] {
            assert_eq!(machine_paths(&file("a", &bad), None).len(), 1, "{bad}");
        }
        assert_eq!(machine_paths(&file("a", "in /srv/me/checkout/xtask\n"), Some("/srv/me/checkout")).len(), 1);
        for good in
            [below("example.org/home", "x"), below("$HOME/work", "x"), "/home is a folder".into(), "/rooted/x".into()]
        {
            assert!(machine_paths(&file("a", &good), Some("/srv/me/checkout")).is_empty(), "{good}");
        }
    }
}
