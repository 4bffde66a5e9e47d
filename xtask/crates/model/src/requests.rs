//! What those ask who give machines only after an application: `targets/requests.yaml`.

use serde::{Deserialize, Serialize};

/// `targets/requests.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestData {
    pub forms: Vec<RequestForm>,
}

/// An application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestForm {
    /// A provider of `targets/runners.yaml`.
    pub provider: String,
    pub title: String,
    /// Where a person sends it.
    pub open: String,
    /// What that person does there.
    pub how: String,
    /// What one must know before.
    pub notes: Vec<String>,
    pub fields: Vec<FormField>,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormField {
    /// As the form calls it.
    pub key: String,
    /// For people.
    pub ask: String,
    pub kind: FieldKind,
    /// What there is to choose from, as the form spells it.
    #[serde(default)]
    pub values: Vec<String>,
    /// What is written where nothing else is answered.
    #[serde(default)]
    pub proposed: Option<String>,
    #[serde(default)]
    pub optional: bool,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FieldKind {
    /// One line, not longer than such fields take.
    Line,
    /// Several lines.
    Text,
    Email,
    Url,
    /// A number from 1 on.
    Count,
    /// One of `values`.
    Choice,
    /// As in a file that ends with `.pub`.
    SshKey,
}
