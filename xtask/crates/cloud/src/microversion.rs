//! Microversions of Nova's API: requests use the newest version that both sides know.
//!
//! OSUOSL may still run Train, whose newest version is 2.79; this crate must not need a newer one.
//! <https://docs.openstack.org/nova/latest/reference/api-microversion-history.html>

use serde_json::Value;

use crate::fault::Fault;

/// Major, minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Microversion(pub u32, pub u32);

impl Microversion {
    /// The version that this crate is written for; from Train (2019).
    pub const NEWEST: Microversion = Microversion(2, 79);
    /// The version that every Nova of the last ten years supports.
    const OLDEST: Microversion = Microversion(2, 1);

    /// None: the server reports no version, which means the oldest.
    pub(crate) fn agreed(document: &Value, newest: Microversion) -> Result<Option<Microversion>, Fault> {
        let read = |field: &str| document[field].as_str().filter(|text| !text.is_empty()).map(str::parse).transpose();
        let (theirs, oldest): (Option<Microversion>, Option<Microversion>) = (read("version")?, read("min_version")?);
        let Some(theirs) = theirs else { return Ok(None) };
        let agreed = theirs.min(newest);
        match oldest {
            Some(oldest) if oldest > agreed => Err(Fault::config(format!(
                "Nova requires version {oldest} or newer of its API, but only {newest} is supported here"
            ))),
            _ if agreed < Microversion::OLDEST => Ok(None),
            _ => Ok(Some(agreed)),
        }
    }
}

impl std::str::FromStr for Microversion {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Microversion, Fault> {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.len() < 6 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u32>().ok().filter(|_| digits)
        };
        let parsed = text.split_once('.').and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
        let (major, minor) =
            parsed.ok_or_else(|| Fault::remote(format!("`{text}` is not a version of Nova's API, such as 2.79")))?;
        Ok(Microversion(major, minor))
    }
}

impl std::fmt::Display for Microversion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn newest_common_version_is_used() {
        let agreed = |document| Microversion::agreed(&document, Microversion::NEWEST);
        for (document, expected) in [
            (json!({"version": "2.79", "min_version": "2.1"}), Some(Microversion(2, 79))),
            // Versions are numbers, not text: 2.9 is older than 2.79.
            (json!({"version": "2.9", "min_version": "2.1"}), Some(Microversion(2, 9))),
            (json!({"version": "2.100", "min_version": "2.1"}), Some(Microversion(2, 79))),
            (json!({"version": "", "min_version": ""}), None),
            (json!({}), None),
            (Value::Null, None),
        ] {
            assert_eq!(agreed(document.clone()).unwrap(), expected, "{document}");
        }
        let error = agreed(json!({"version": "2.100", "min_version": "2.90"})).unwrap_err();
        assert!(error.text.contains("2.90") && error.text.contains("2.79"), "{error}");
        for bad in ["2", "2.", "2.x", "2.-1", "2.+1", ".1", "2.1.1", "2.99999999999"] {
            assert!(agreed(json!({"version": bad})).is_err(), "{bad}");
        }
    }
}
