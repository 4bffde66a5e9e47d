//! Entry points for the fuzz crate; no product code calls them. Each takes any bytes and panics on a defect.

use std::sync::OnceLock;

use crate::Keys;

/// The name of a corpus, and a function that panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("openpgp-keys", keys), ("openpgp-signed", signed)];

/// The public half of a key that was made for this and thrown away.
const KEYS: &str = include_str!("fuzzing/keys.asc");
/// The only text that the key has ever signed.
const TEXT: &str = "Origin: Test\nSuite: testing\nCodename: trixie\nSHA256:\n - a line with a dash\n- and one more\n";
/// A message of which the keys of an input are asked.
const MESSAGE: &str = include_str!("../../../fuzz/corpus/openpgp-signed/good");

/// Armored keys of any origin, as they are used: only the right key has signed the message.
fn keys(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(keys) = Keys::parse(text) else { return };
    if let Ok(signed) = keys.signed_text(MESSAGE) {
        is_signed(&signed);
    }
}

/// A clear-signed text of any origin: what is accepted is the text that was signed.
fn signed(data: &[u8]) {
    static TRUSTED: OnceLock<Keys> = OnceLock::new();
    let trusted = TRUSTED.get_or_init(|| Keys::parse(KEYS).expect("the key of the target can be read"));
    let Ok(message) = std::str::from_utf8(data) else { return };
    if let Ok(text) = trusted.signed_text(message) {
        is_signed(&text);
    }
}

/// Blanks at the ends of lines are not signed (RFC 9580, section 7.2).
fn is_signed(text: &str) {
    let lines = |text: &str| text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(text), lines(TEXT), "a text was accepted that was not signed");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_the_target_is_accepted() {
        is_signed(&Keys::parse(KEYS).unwrap().signed_text(MESSAGE).unwrap());
    }
}
