//! A text that must not be shown: tokens, passwords, keys.

use serde::Deserialize;

/// Displayed as `***` and never serialised. Code that needs the text calls [`Secret::expose`].
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct Secret(String);

impl Secret {
    /// Removes the line end that a file or a copied text has.
    pub fn new(text: &str) -> Secret {
        Secret(text.trim().to_owned())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `text` with this secret masked.
    pub fn masked_in(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(&self.0, "***") }
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret::new(&text)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_masked() {
        let secret = Secret::new(" planted\n");
        assert_eq!(secret.expose(), "planted");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "*** Some(***)");
        assert_eq!(secret.masked_in("a planted word, planted twice"), "a *** word, *** twice");
        assert_eq!(Secret::new("").masked_in("nothing"), "nothing");
    }
}
