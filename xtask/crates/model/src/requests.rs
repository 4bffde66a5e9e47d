//! Application forms of providers that give machines only after an application: `targets/requests.yaml`.

use serde::{Deserialize, Serialize};

/// `targets/requests.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestData {
    pub forms: Vec<RequestForm>,
}

/// An application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestForm {
    /// A provider of `targets/runners.yaml`.
    pub provider: String,
    pub title: String,
    /// Where a person sends the application.
    pub open: String,
    /// What the person does there.
    pub how: String,
    /// What the applicant must know before.
    pub notes: Vec<String>,
    pub fields: Vec<FormField>,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormField {
    /// The question's name in the form.
    pub key: String,
    /// The question, for people.
    pub ask: String,
    pub kind: FieldKind,
    /// The options, as the form spells them.
    #[serde(default)]
    pub values: Vec<String>,
    /// The default answer.
    pub proposed: Option<String>,
    #[serde(default)]
    pub optional: bool,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FieldKind {
    /// One line, at most as long as such fields allow.
    Line,
    /// Several lines.
    Text,
    Email,
    Url,
    /// A number from 1 on.
    Count,
    /// One of `values`.
    Choice,
    /// An SSH public key, as in a file that ends with `.pub`.
    SshKey,
}
