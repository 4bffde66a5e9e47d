//! What must not be seen: tokens, keys, configurations that hold keys.

use serde::{Deserialize, Deserializer};

/// A text that no log, error or dry run shows. It has no `Display`, and what needs it must say so: [`Secret::expose`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Without blanks around it: files and variables often end with a line end.
    pub fn new(text: &str) -> Secret {
        Secret(text.trim().to_owned())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        String::deserialize(deserializer).map(|text| Secret::new(&text))
    }
}
