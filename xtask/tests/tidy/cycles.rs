//! The modules of a crate use each other in one direction only: no two need each other, directly or through others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::rules::File;

/// For each module that an edge leads to, a file with the edge.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

/// The cycles between the top-level modules of each crate. `code` is without tests.
pub(crate) fn cycles(code: &[File]) -> Vec<String> {
    let crates: BTreeSet<&str> = code.iter().filter_map(|file| Some(place(&file.path)?.0)).collect();
    crates.into_iter().flat_map(|name| cycles_of(name, &edges(name, code))).collect()
}

/// The folder of the crate and the top-level module of a file; None outside the sources of a crate.
fn place(path: &str) -> Option<(&str, &str)> {
    let (name, rest) = path.split_once("/src/")?;
    let module = rest.split('/').next()?;
    Some((name, module.trim_end_matches(".rs")))
}

fn edges(name: &str, code: &[File]) -> Edges {
    let files: Vec<(&str, &File)> = code
        .iter()
        .filter_map(|file| place(&file.path).filter(|(of, _)| *of == name).map(|(_, module)| (module, file)))
        .filter(|(module, _)| !matches!(*module, "lib" | "main"))
        .collect();
    let modules: BTreeSet<&str> = files.iter().map(|(module, _)| *module).collect();
    let mut edges = Edges::new();
    for (module, file) in files {
        let used =
            used_modules(&file.text).into_iter().filter(|used| used != module && modules.contains(used.as_str()));
        for used in used {
            edges.entry(module.to_owned()).or_default().entry(used).or_insert_with(|| file.path.clone());
        }
    }
    edges
}

/// The first names after `crate::`, also of the groups `crate::{a, b::c}`.
fn used_modules(text: &str) -> BTreeSet<String> {
    let code: String = text.lines().map(|line| line.split("//").next().unwrap_or("")).collect();
    let name = |path: &str| path.trim().split(|c: char| !(c.is_alphanumeric() || c == '_')).next().map(str::to_owned);
    let mut names = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(group) => names.extend(items(group).into_iter().filter_map(name)),
            None => names.extend(name(rest)),
        }
    }
    names
}

/// The items of a group up to its closing brace.
fn items(group: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut items) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                items.push(&group[begin..at]);
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    items
}

/// One shortest cycle for each set of modules that are in one.
fn cycles_of(name: &str, edges: &Edges) -> Vec<String> {
    let (mut seen, mut faults) = (BTreeSet::new(), Vec::new());
    for module in edges.keys().filter(|module| !module.is_empty()) {
        let Some(cycle) = way_back(module, edges).filter(|_| !seen.contains(module)) else { continue };
        let files: Vec<&str> =
            cycle.iter().zip(cycle.iter().cycle().skip(1)).map(|(from, to)| edges[from][to].as_str()).collect();
        faults.push(format!(
            "{name}: {} -> {module}: modules must not need each other; move the shared part into a module that both use \
             ({})",
            cycle.join(" -> "),
            files.join(", ")
        ));
        seen.extend(cycle);
    }
    faults
}

/// The modules on a shortest way from a module back to itself, beginning with it.
fn way_back(module: &str, edges: &Edges) -> Option<Vec<String>> {
    let mut ways = VecDeque::from([vec![module.to_owned()]]);
    let mut visited = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in edges.get(way.last()?).into_iter().flat_map(BTreeMap::keys) {
            if next == module {
                return Some(way);
            }
            if visited.insert(next.clone()) {
                ways.push_back([way.clone(), vec![next.clone()]].concat());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        cycles(&files.iter().map(file).collect::<Vec<_>>())
    }

    #[test]
    fn circular_use_is_found_in_groups_folders_and_through_other_modules() {
        let cycle = |b: &str| {
            let a = ("x/src/a/deep.rs", "use crate::{\n    c::D,\n    b::{self, crate_name}\n};\n");
            found(&[
                ("x/src/lib.rs", "use crate::a;"),
                a,
                ("x/src/b.rs", b),
                ("x/src/c.rs", "fn f() { crate::a::g() }"),
            ])
        };
        assert_eq!(cycle("use crate::e;").len(), 1, "a -> c -> a");
        let faults = cycle("use crate::c;");
        assert!(faults.len() == 2 && faults[0].starts_with("x: a -> c -> a: "), "{faults:?}");
        assert!(faults[0].ends_with("(x/src/a/deep.rs, x/src/c.rs)"), "{faults:?}");
    }

    #[test]
    fn use_in_one_direction_of_other_crates_and_in_comments_is_allowed() {
        let files = [
            ("x/src/a.rs", "use crate::b;\n// crate::a\nuse other::a;"),
            ("x/src/b.rs", "/// See [`crate::a`].\nuse crate::Root;"),
            ("y/src/b.rs", "use crate::a;"),
            ("y/src/a.rs", ""),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
    }
}
