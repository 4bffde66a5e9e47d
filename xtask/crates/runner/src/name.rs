//! Names of runners that were made here. The time is in the name, because GitHub does not tell how old a runner is.

use jiff::Timestamp;

use crate::error::Error;

/// Whatever is cleaned up begins with this.
pub const PREFIX: &str = "archproof";
/// Longer ones are refused by GitHub.
const LONGEST: usize = 64;

/// `archproof-ARCH-TIME-XXXX`: the seconds since 1970 and a random number, both in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub arch: String,
    pub created: Timestamp,
}

impl Name {
    /// A name that nobody has.
    pub fn fresh(arch: &str, now: Timestamp) -> String {
        format!("{PREFIX}-{arch}-{:08x}-{:04x}", now.as_second(), fastrand::u16(..))
    }

    /// None: it was not made here.
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

/// Names of runners become names of servers and parts of paths.
pub fn check_name(name: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.is_empty() && name.len() <= LONGEST && name.chars().all(plain) && !name.starts_with(['-', '.']) {
        return Ok(());
    }
    let name = crate::plain(name);
    Err(Error::Config(format!("`{name}` is no name for a runner: 1 to {LONGEST} letters, digits, -, _ and .")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_age_and_strangers_names_are_left_alone() {
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
