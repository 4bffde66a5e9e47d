//! The protobuf schema of one release of Kubernetes, and stored values decoded with it.
//!
//! The `.proto` files say what is in the bytes. They do not say how an object looks in JSON: which nested message is inlined,
//! which empty value is omitted, which list has a message of its own. That is in the struct tags of the Go types, so both
//! are read. Both come from the modules from which the release is built; nothing of them is in this project.
//!
//! | file | holds |
//! | --- | --- |
//! | `proto` | `.proto` files to messages |
//! | `go_types` | Go files to the names and rules of JSON |
//! | `object` | bytes to a JSON value |
//! | `forms` | types with a JSON form of their own: times, quantities, raw JSON |
//!
//! Not here: the wire format ([`crate::decode`]), and the search for the files.

mod forms;
mod go_types;
mod object;
mod proto;

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

pub use object::{Decoded, decode_message, decode_object};

/// The package of the kinds that every group has.
const META: &str = "k8s.io.apimachinery.pkg.apis.meta.v1";

/// All messages of a release, by their names without a dot in front: `k8s.io.api.core.v1.Pod`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    pub messages: HashMap<String, Message>,
    /// The protobuf package of each `group/version`: `apps/v1` is `k8s.io.api.apps.v1`, and `v1` is `k8s.io.api.core.v1`.
    pub packages: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// By field number.
    pub fields: BTreeMap<u32, Field>,
    /// The Go type is a list, and only protobuf needs a message for it: JSON has the items of field 1.
    #[serde(default, skip_serializing_if = "is_false")]
    pub list: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// In JSON.
    pub name: String,
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "is_false")]
    pub repeated: bool,
    /// JSON has the fields of this message in the message around it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub inline: bool,
    /// When JSON leaves out an empty value.
    pub empty: Empty,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Kind {
    Text,
    Bytes,
    Bool,
    /// int32 and int64.
    Int,
    Double,
    /// The name of a message.
    Message(String),
    Map(Scalar, Box<Kind>),
}

/// The types of map keys in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scalar {
    Text,
    Int,
}

/// What JSON shows of an empty value that is in the bytes. Protobuf in Kubernetes writes the fields of a struct even if they
/// are empty, and leaves out nil pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Empty {
    /// The value: the Go field is a pointer, or has no `omitempty`.
    Shown,
    /// Nothing, for an empty scalar; a struct is never empty for `omitempty`.
    Omitted,
    /// Nothing, also for a struct: `omitzero`.
    Zero,
}

/// One source file; errors name it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

/// One Go package with a `generated.proto`.
#[derive(Clone, Debug)]
pub struct Package<'a> {
    pub proto: Source<'a>,
    /// Its Go files, without tests.
    pub go: Vec<Source<'a>>,
}

impl Schema {
    /// # Errors
    /// A file is not what go-to-protobuf writes, a message occurs twice, or a type is missing.
    pub fn read(packages: &[Package<'_>]) -> Result<Schema, String> {
        let mut schema = Schema::default();
        for package in packages {
            schema.add(package).map_err(|why| format!("{}: {why}", package.proto.name))?;
        }
        schema.resolve()?;
        Ok(schema)
    }

    fn add(&mut self, package: &Package<'_>) -> Result<(), String> {
        let file = proto::parse(package.proto.text)?;
        let mut types = go_types::Types::default();
        for source in &package.go {
            types.read(source.text).map_err(|why| format!("{}: {why}", source.name))?;
        }
        if let Some((group, version)) = types.group.as_ref().zip(file.package.rsplit('.').next()) {
            let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            self.packages.insert(name, file.package.clone());
        }
        for (name, fields) in file.messages {
            let list = types.lists.contains(&name);
            let tags = types.structs.get(&name);
            let named = |(number, field): (u32, proto::Field)| {
                let tag = tags.and_then(|tags| tags.get(&number));
                (number, Field::of(field, tag))
            };
            let message = Message { fields: fields.into_iter().map(named).collect(), list };
            let full = format!("{}.{name}", file.package);
            if self.messages.insert(full.clone(), message).is_some() {
                return Err(format!("a second message {full}"));
            }
        }
        Ok(())
    }

    /// Completes the names of messages: a name without dots is of the same package.
    fn resolve(&mut self) -> Result<(), String> {
        let known: std::collections::HashSet<String> = self.messages.keys().cloned().collect();
        for (name, message) in &mut self.messages {
            let package = name.rsplit_once('.').map_or("", |(package, _)| package);
            for field in message.fields.values_mut() {
                let kind = match &mut field.kind {
                    Kind::Map(_, kind) => kind.as_mut(),
                    kind => kind,
                };
                let Kind::Message(of) = kind else { continue };
                let full = match of.strip_prefix('.') {
                    Some(full) => full.to_owned(),
                    None => format!("{package}.{of}"),
                };
                if !known.contains(&full) {
                    return Err(format!("{name}.{}: no message {full}", field.name));
                }
                *of = full;
            }
        }
        Ok(())
    }

    /// The message of an object: `apps/v1` and `Deployment`. Every group also has the kinds of all groups: `v1` and `Status`.
    pub fn message_of(&self, api_version: &str, kind: &str) -> Option<String> {
        let packages = [self.packages.get(api_version)?.as_str(), META];
        let names = packages.map(|package| format!("{package}.{kind}"));
        names.into_iter().find(|name| self.messages.contains_key(name))
    }
}

impl Field {
    /// Whether the Go field can be nil and JSON shows that.
    fn is_null_if_absent(&self) -> bool {
        self.empty == Empty::Shown && (self.repeated || matches!(self.kind, Kind::Map(..) | Kind::Bytes))
    }

    fn of(field: proto::Field, tag: Option<&go_types::Tag>) -> Field {
        let proto::Field { name, kind, repeated } = field;
        match tag {
            None => Field { name, kind, repeated, inline: false, empty: Empty::Shown },
            Some(tag) => {
                // Paths show an inlined field by its name in protobuf.
                let name = if tag.inline { name } else { tag.json.clone() };
                Field { name, kind, repeated, inline: tag.inline, empty: tag.empty }
            }
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
pub(crate) mod tests;
