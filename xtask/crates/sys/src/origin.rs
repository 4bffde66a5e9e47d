//! Where this program comes from: a checkout, or a release archive of `cargo xtask dist`.

use std::borrow::Cow;
use std::path::Path;

use anyhow::Context;

/// How texts of the project call the program.
const IN_CHECKOUT: &str = "cargo xtask";
/// The name of the program in a release archive.
pub const IN_ARCHIVE: &str = "archproof";

/// `dist` sets this variable for the compiler, so that no path of the building machine is in the program.
pub const ARCHIVE_VARIABLE: &str = "ARCHPROOF_ARCHIVE";

/// The checkout that this program was built in, with its `Cargo.toml`. None in a release archive.
pub fn checkout() -> Option<&'static Path> {
    // ARCHIVE_VARIABLE; the macro takes no constant.
    if option_env!("ARCHPROOF_ARCHIVE").is_some() {
        return None;
    }
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3)
}

/// The checkout, for a part of the project that cargo must compile.
///
/// # Errors
/// The program is from a release archive, or its checkout has moved.
pub fn sources() -> anyhow::Result<&'static Path> {
    let found = checkout().filter(|checkout| checkout.join("Cargo.toml").is_file());
    found.context("this needs the sources of the project: use `cargo xtask` in a checkout")
}

/// The name of this program on a command line.
pub fn program() -> &'static str {
    if checkout().is_some() { IN_CHECKOUT } else { IN_ARCHIVE }
}

/// `text` with the commands as the user of this program types them.
pub fn typed(text: &str) -> Cow<'_, str> {
    typed_for(text, program())
}

fn typed_for<'a>(text: &'a str, program: &str) -> Cow<'a, str> {
    if program != IN_CHECKOUT && text.contains(IN_CHECKOUT) {
        Cow::Owned(text.replace(IN_CHECKOUT, program))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_run_in_their_checkout() {
        let checkout = checkout().unwrap();
        assert!(checkout.join("Cargo.lock").is_file(), "{}", checkout.display());
    }

    #[test]
    fn commands_have_the_name_of_the_program() {
        let text = "see `cargo xtask doctor`";
        assert_eq!(typed_for(text, IN_ARCHIVE), "see `archproof doctor`");
        assert_eq!(typed(text), text);
    }
}
