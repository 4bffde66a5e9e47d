//! Makes stored values of two machines comparable: replaces every value that the server chooses or reads from a clock
//! with a fixed text of the same length. Everything else and all lengths stay the same, so every length prefix stays
//! correct.
//!
//! The response to the create contains the values to replace, so the same rules serve every encoding. A value that is
//! stored in an unusual form stays unmasked and visible.

use anyhow::{Context, bail};
use serde_json::Value;

const UID: &str = "00000000-0000-4000-8000-000000000000";
/// The time that replaces all times. As for all dates from 2004 to 3058, its seconds take five bytes as a varint.
const TIME: &str = "2024-01-01T00:00:00Z";
const TIME_SECONDS: i64 = 1_704_067_200;
/// The node port that replaces all others. Ports 30000 to 32767 take three bytes as a varint and five digits.
const NODE_PORT: u64 = 30_000;
/// `nodePort` in ServicePort is field 5, a varint.
const NODE_PORT_TAG: u8 = 5 << 3;

/// Pairs of original and replacement bytes.
#[derive(Debug, Default)]
pub(crate) struct Mask {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Mask {
    /// The mask for an object as in the response to its create; all names that the case creates contain `name_prefix`.
    pub(crate) fn of(object: &Value, name_prefix: &str) -> anyhow::Result<Mask> {
        let mut mask = Mask::default();
        mask.text(name_prefix, &format!("{}xxxxx", &name_prefix[..name_prefix.len().saturating_sub(5)]))?;
        let metadata = &object["metadata"];
        mask.text(metadata["uid"].as_str().context("the answer has no uid")?, UID)?;
        let managed = metadata["managedFields"].as_array().into_iter().flatten().map(|entry| &entry["time"]);
        for time in managed.chain([&metadata["creationTimestamp"]]) {
            mask.time(time.as_str().context("the answer has no creationTimestamp or no time in managedFields")?)?;
        }
        if object["kind"] == "Service" {
            mask.service(&object["spec"])?;
        }
        Ok(mask)
    }

    pub(crate) fn apply(&self, value: &[u8]) -> Vec<u8> {
        let mut masked = value.to_vec();
        for (from, to) in &self.pairs {
            let mut at = 0;
            while let Some(found) = masked[at..].windows(from.len()).position(|window| window == from) {
                masked[at + found..at + found + to.len()].copy_from_slice(to);
                at += found + to.len();
            }
        }
        masked
    }

    fn text(&mut self, from: &str, to: &str) -> anyhow::Result<()> {
        self.bytes(from.as_bytes().to_vec(), to.as_bytes().to_vec())
    }

    fn bytes(&mut self, from: Vec<u8>, to: Vec<u8>) -> anyhow::Result<()> {
        if from.len() != to.len() || from.is_empty() {
            bail!("{:?} cannot be masked without changing a length", String::from_utf8_lossy(&from));
        }
        self.pairs.push((from, to));
        Ok(())
    }

    /// Masks a time as text, and as metav1.Time in protobuf: seconds, and nanoseconds that are always 0 in storage.
    fn time(&mut self, text: &str) -> anyhow::Result<()> {
        let seconds = text.parse::<jiff::Timestamp>().with_context(|| format!("{text:?} is not a time"))?.as_second();
        self.text(text, TIME)?;
        self.bytes(stored_time(seconds), stored_time(TIME_SECONDS))
    }

    fn service(&mut self, spec: &Value) -> anyhow::Result<()> {
        let address = spec["clusterIP"].as_str().context("the Service has no address")?;
        let digits = |c: char| if c.is_ascii_digit() { '1' } else { c };
        self.text(address, &address.chars().map(digits).collect::<String>())?;
        for port in spec["ports"].as_array().into_iter().flatten() {
            let number = port["nodePort"].as_u64().context("the Service has no node port")?;
            for quote in ["\"nodePort\":", "nodePort: "] {
                self.text(&format!("{quote}{number}"), &format!("{quote}{NODE_PORT}"))?;
            }
            let field = |number| [&[NODE_PORT_TAG][..], &varint(number)].concat();
            self.bytes(field(number), field(NODE_PORT))?;
        }
        Ok(())
    }
}

/// metav1.Time in protobuf, like `google.protobuf.Timestamp`: field 1 seconds, field 2 nanoseconds.
fn stored_time(seconds: i64) -> Vec<u8> {
    [&[1 << 3][..], &varint(seconds.cast_unsigned()), &[2 << 3, 0]].concat()
}

fn varint(number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_varint(number, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({"kind": "Service", "metadata": {
            "uid": "e349cb4e-c56b-486d-9694-b2e586f2632d", "creationTimestamp": "2026-11-21T20:01:17Z",
            "managedFields": [{"time": "2026-11-21T20:01:18Z"}],
        }, "spec": {"clusterIP": "10.96.7.123", "ports": [{"nodePort": 32767}]}})
    }

    #[test]
    fn server_chosen_values_are_replaced_and_lengths_stay() {
        let mask = Mask::of(&object(), "ap-x-abcde").unwrap();
        let text = object().to_string() + " nodePort: 32767 ap-x-abcde";
        let masked = String::from_utf8(mask.apply(text.as_bytes())).unwrap();
        assert_eq!(masked.len(), text.len());
        for gone in ["e349cb4e", "2026", "10.96.7.123", "32767", "abcde"] {
            assert!(!masked.contains(gone), "{gone} in {masked}");
        }
        assert!(masked.contains(UID) && masked.contains("11.11.1.111") && masked.contains("ap-x-xxxxx"), "{masked}");
    }

    #[test]
    fn times_and_ports_in_protobuf_are_replaced() {
        let mask = Mask::of(&object(), "ap-x-abcde").unwrap();
        let seconds = "2026-11-21T20:01:17Z".parse::<jiff::Timestamp>().unwrap().as_second();
        assert_eq!(mask.apply(&stored_time(seconds)), stored_time(TIME_SECONDS));
        // Times with other seconds or with a fraction stay.
        for other in [stored_time(seconds + 9), [&stored_time(seconds)[..7], &[1]].concat()] {
            assert_eq!(mask.apply(&other), other);
        }
        assert_eq!(mask.apply(&[0x28, 0xff, 0xff, 0x01]), [0x28, 0xb0, 0xea, 0x01]);
        assert_eq!(stored_time(TIME_SECONDS).len(), 8);
    }

    #[test]
    fn values_of_another_length_are_refused() {
        let short = |field: &str, value: Value| {
            let mut object = object();
            object["metadata"][field] = value;
            Mask::of(&object, "ap-x-abcde").is_err()
        };
        assert!(short("uid", json!("short")));
        assert!(short("uid", Value::Null));
        assert!(short("creationTimestamp", json!("2026-11-21T20:01:17.5Z")));
        assert!(short("managedFields", json!([{}])));
    }
}
