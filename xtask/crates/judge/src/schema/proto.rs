//! `.proto` files as go-to-protobuf writes them: a package, and messages of fields without options. Enumerations, groups,
//! services and nested messages do not occur in Kubernetes and are refused.

use std::collections::BTreeMap;

use super::{Kind, Scalar};

/// The messages of a file.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) package: String,
    pub(super) messages: BTreeMap<String, BTreeMap<u32, Field>>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    /// A message by the name in the file.
    pub(super) kind: Kind,
    pub(super) repeated: bool,
}

/// The largest field number of protobuf.
const LARGEST: u32 = (1 << 29) - 1;

/// Reads a file. Errors have the number of the line.
pub(super) fn parse(text: &str) -> Result<File, String> {
    let mut file = File::default();
    let mut message: Option<(String, BTreeMap<u32, Field>)> = None;
    let mut in_comment = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if in_comment || line.starts_with("/*") {
            in_comment = !line.ends_with("*/");
            continue;
        }
        if line.is_empty() || line.starts_with("//") {
            continue;
        }
        let wrong = |why: &str| format!("line {}: {why}: {line}", index + 1);
        match &mut message {
            None => {
                if let Some(name) = line.strip_prefix("message ").and_then(|rest| rest.strip_suffix('{')) {
                    message = Some((name.trim().to_owned(), BTreeMap::new()));
                } else if let Some(package) = line.strip_prefix("package ").and_then(|rest| rest.strip_suffix(';')) {
                    package.trim().clone_into(&mut file.package);
                } else if !["syntax ", "import ", "option "].iter().any(|word| line.starts_with(word)) {
                    return Err(wrong("neither a message nor a package"));
                }
            }
            Some((name, fields)) if line == "}" => {
                if file.messages.insert(std::mem::take(name), std::mem::take(fields)).is_some() {
                    return Err(wrong("a second message of this name"));
                }
                message = None;
            }
            Some((_, fields)) => {
                let (number, field) = field(line).ok_or_else(|| wrong("not a field"))?;
                if fields.insert(number, field).is_some() {
                    return Err(wrong("a second field of this number"));
                }
            }
        }
    }
    match (message, file.package.is_empty()) {
        (Some((name, _)), _) => Err(format!("message {name} does not end")),
        (None, true) => Err("no package".into()),
        (None, false) => Ok(file),
    }
}

/// `optional string name = 1;`, `map<string, .k8s.io.….Quantity> hard = 1;`
fn field(line: &str) -> Option<(u32, Field)> {
    let (left, number) = line.strip_suffix(';')?.rsplit_once('=')?;
    let number: u32 = number.trim().parse().ok().filter(|number| (1..=LARGEST).contains(number))?;
    let (kind, name) = left.trim().rsplit_once(' ')?;
    let (kind, repeated) = match kind.split_once(' ') {
        Some(("optional" | "required", kind)) => (scalar_or_message(kind.trim())?, false),
        Some(("repeated", kind)) => (scalar_or_message(kind.trim())?, true),
        _ => (map(kind)?, true),
    };
    Some((number, Field { name: name.to_owned(), kind, repeated }))
}

fn map(kind: &str) -> Option<Kind> {
    let (key, value) = kind.strip_prefix("map<")?.strip_suffix('>')?.split_once(',')?;
    let key = match key.trim() {
        "string" => Scalar::Text,
        "int32" | "int64" => Scalar::Int,
        _ => return None,
    };
    Some(Kind::Map(key, Box::new(scalar_or_message(value.trim())?)))
}

fn scalar_or_message(name: &str) -> Option<Kind> {
    Some(match name {
        "string" => Kind::Text,
        "bytes" => Kind::Bytes,
        "bool" => Kind::Bool,
        "int32" | "int64" => Kind::Int,
        "double" => Kind::Double,
        _ => {
            let of = name.rsplit('.').next()?;
            if !of.starts_with(|c: char| c.is_ascii_uppercase()) || of.contains(|c: char| !c.is_ascii_alphanumeric()) {
                return None;
            }
            Kind::Message(name.to_owned())
        }
    })
}
