//! Words of commands that people copy into a shell.

/// Quotes the text so that a shell reads it as one word. A plain word stays as it is.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_reads_each_quoted_word_as_one_word() {
        for (word, expected) in [
            ("storage.key-layout", "storage.key-layout"),
            ("checkout:../kubernetes", "checkout:../kubernetes"),
            ("2/4", "2/4"),
            ("*.media-type-*", "'*.media-type-*'"),
            ("my runs/x", "'my runs/x'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
