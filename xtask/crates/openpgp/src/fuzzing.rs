//! Entry points for the fuzz crate; production code does not call them. Each takes any bytes and panics on a defect.

use std::sync::OnceLock;

use crate::Keys;

/// The name of a corpus, and a function that panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("openpgp-keys", keys), ("openpgp-signed", signed)];

/// The public half of a key that was generated for this target and then deleted.
const KEYS: &str = include_str!("fuzzing/keys.asc");
/// The only text that the key has ever signed.
const TEXT: &str = "Origin: Test\nSuite: testing\nCodename: trixie\nSHA256:\n - a line with a dash\n- and one more\n";
/// A signed message against which the input's keys are tried.
const MESSAGE: &str = include_str!("../../../fuzz/corpus/openpgp-signed/good");

/// Armored keys from any source: only the right key verifies the message.
fn keys(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(keys) = Keys::parse(text) else { return };
    if let Ok(signed) = keys.signed_text(MESSAGE) {
        is_signed(&signed);
    }
}

/// A clear-signed text from any source: accepted text is the text that was signed.
fn signed(data: &[u8]) {
    static TRUSTED: OnceLock<Keys> = OnceLock::new();
    let trusted = TRUSTED.get_or_init(|| Keys::parse(KEYS).expect("the target's key must parse"));
    let Ok(message) = std::str::from_utf8(data) else { return };
    if let Ok(text) = trusted.signed_text(message) {
        is_signed(&text);
    }
}

/// Whitespace at the ends of lines is not signed (RFC 9580, section 7.2).
fn is_signed(text: &str) {
    let lines = |text: &str| text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(text), lines(TEXT), "a text that was not signed was accepted");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_the_target_is_accepted() {
        is_signed(&Keys::parse(KEYS).unwrap().signed_text(MESSAGE).unwrap());
    }
}
