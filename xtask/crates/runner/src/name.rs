//! Names of runners that this program registers. A name contains the time, because GitHub does not report a runner's
//! age.

use jiff::Timestamp;

use crate::error::Error;

/// Prefix of everything that this program cleans up.
pub const PREFIX: &str = "archproof";
/// GitHub refuses longer names.
const LONGEST: usize = 64;

/// `archproof-ARCH-TIME-XXXX`: the seconds since 1970 and a random number, both in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub arch: String,
    pub created: Timestamp,
}

impl Name {
    /// A new, unique name.
    pub fn fresh(arch: &str, now: Timestamp) -> String {
        format!("{PREFIX}-{arch}-{:08x}-{:04x}", now.as_second(), fastrand::u16(..))
    }

    /// None: this program did not make the name.
    pub fn parse(name: &str) -> Option<Name> {
        let rest = name.strip_prefix(PREFIX)?.strip_prefix('-')?;
        let (rest, random) = rest.rsplit_once('-')?;
        let (arch, time) = rest.rsplit_once('-')?;
        let hex = |text: &str, digits| text.len() == digits && text.chars().all(|c| c.is_ascii_hexdigit());
        if arch.is_empty() || !hex(time, 8) || !hex(random, 4) {
            return None;
        }
        let created = Timestamp::from_second(i64::from_str_radix(time, 16).ok()?).ok()?;
        Some(Name { arch: arch.into(), created })
    }
}

/// Checks the name of a runner. It also becomes the name of a server and part of paths.
pub fn check_name(name: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.is_empty() && name.len() <= LONGEST && name.chars().all(plain) && !name.starts_with(['-', '.']) {
        return Ok(());
    }
    let name = crate::plain(name);
    Err(Error::Config(format!("`{name}` is not a valid runner name: use 1 to {LONGEST} letters, digits, -, _ and .")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_names_contain_their_age_and_foreign_names_are_ignored() {
        let now = Timestamp::from_second(1_795_000_000).unwrap();
        for arch in ["riscv64", "split-arch"] {
            let name = Name::fresh(arch, now);
            assert_eq!(Name::parse(&name), Some(Name { arch: arch.into(), created: now }), "{name}");
            check_name(&name).unwrap();
        }
        for other in [
            "",
            "archproof",
            "archproof-riscv64",
            "archproof-riscv64-6afd4ec0",
            "archproof-riscv64-6afd4ec0-12",
            "archproof-riscv64-zzzzzzzz-1234",
            "archproof--6afd4ec0-1234",
            "my-archproof-riscv64-6afd4ec0-1234",
            "archproofriscv64-6afd4ec0-1234",
        ] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
        for bad in ["", "a b", "a/b", "-a", "..", "ä", &"a".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
