//! What the Go files of a package say about JSON: the struct tags, and the types that are lists.
//!
//! Only lines with a protobuf tag matter, and gofmt writes each field on one line, so this reads lines, not Go.

use std::collections::{BTreeMap, BTreeSet};

use super::Empty;

/// The types of one package.
#[derive(Debug, Default)]
pub(super) struct Types {
    /// `GroupName` of register.go.
    pub(super) group: Option<String>,
    /// By the name of the type and the number of the field.
    pub(super) structs: BTreeMap<String, BTreeMap<u32, Tag>>,
    /// `type ExtraValue []string`.
    pub(super) lists: BTreeSet<String>,
}

/// The tags of one field.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tag {
    /// The name in JSON; empty for an inlined field.
    pub(super) json: String,
    pub(super) inline: bool,
    pub(super) empty: Empty,
}

impl Types {
    /// Adds a file. Errors: the tags of a field cannot be read.
    pub(super) fn read(&mut self, text: &str) -> Result<(), String> {
        let mut current: Option<&str> = None;
        for line in text.lines() {
            let code = line.trim();
            if let Some(group) = group(code) {
                self.group = Some(group.to_owned());
            }
            // gofmt indents the body of a type that is declared on the top level.
            if let Some(declared) = line.strip_prefix("type ") {
                let (name, of) = declared.split_once(' ').unwrap_or((declared, ""));
                current = of.starts_with("struct").then_some(name);
                if of.starts_with("[]") {
                    self.lists.insert(name.to_owned());
                }
            } else if line.starts_with('}') {
                current = None;
            } else if let Some((name, tag)) = current.zip(tag_text(code)) {
                let (number, tag) = field(code, tag).ok_or_else(|| format!("the tags of {name}: {code}"))?;
                self.structs.entry(name.to_owned()).or_default().insert(number, tag);
            }
        }
        Ok(())
    }
}

/// `const GroupName = "apps"`
fn group(code: &str) -> Option<&str> {
    let rest = code.strip_prefix("const ").unwrap_or(code).strip_prefix("GroupName")?.trim_start();
    rest.strip_prefix('=')?.trim().strip_prefix('"')?.strip_suffix('"')
}

/// The tags of a field that is in protobuf and in JSON.
fn tag_text(code: &str) -> Option<&str> {
    if code.starts_with("//") {
        return None;
    }
    let (_, rest) = code.split_once('`')?;
    let (tags, _) = rest.split_once('`')?;
    let in_protobuf = value(tags, "protobuf").is_some_and(|protobuf| protobuf != "-");
    // A type with its own form in JSON has no tags for it.
    (in_protobuf && value(tags, "json").is_some()).then_some(tags)
}

fn field(code: &str, tags: &str) -> Option<(u32, Tag)> {
    let protobuf = value(tags, "protobuf")?;
    let number = protobuf.split(',').nth(1)?.parse().ok()?;
    let json = value(tags, "json")?;
    let (name, options) = json.split_once(',').unwrap_or((json, ""));
    let has = |option| options.split(',').any(|given| given == option);
    // `Name *string`; an embedded type stands alone.
    let words: Vec<&str> = code.split_once('`')?.0.split_whitespace().collect();
    let is_pointer = words.last().is_some_and(|of| of.starts_with('*'));
    let inline = has("inline") || (name.is_empty() && words.len() == 1);
    if name.is_empty() && !inline {
        return None;
    }
    let empty = match (is_pointer, has("omitzero"), has("omitempty")) {
        (false, true, _) => Empty::Zero,
        (false, false, true) => Empty::Omitted,
        _ => Empty::Shown,
    };
    Some((number, Tag { json: name.to_owned(), inline, empty }))
}

/// The text of one tag: `json` of `json:"name,omitempty" protobuf:"…"`.
fn value<'a>(tags: &'a str, key: &str) -> Option<&'a str> {
    let begin = tags
        .match_indices(key)
        .find(|(at, _)| tags[at + key.len()..].starts_with(":\"") && (*at == 0 || tags[..*at].ends_with(' ')))?;
    tags[begin.0 + key.len() + 2..].split('"').next()
}
