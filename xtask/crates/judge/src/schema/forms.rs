//! Messages whose JSON is not an object of their fields: the Go type has its own `MarshalJSON`.

use serde_json::{Map, Value};

use super::object::{Decoder, Place};
use crate::decode::{PROTOBUF_MAGIC, envelope, field, fields};

/// Makes the JSON value of a message.
pub(super) type Form = fn(&mut Decoder<'_>, &[u8], &Place<'_>) -> Result<Value, String>;

const META: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.";
const EXTENSIONS: &str = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.";

/// The form of a message; None: an object of its fields.
pub(super) fn form(name: &str) -> Option<Form> {
    if let Some(name) = name.strip_prefix(META) {
        return Some(match name {
            "Time" => time,
            "MicroTime" => micro_time,
            "Duration" => duration,
            "FieldsV1" => raw_json,
            _ => return None,
        });
    }
    if let Some((_version, name)) = name.strip_prefix(EXTENSIONS).and_then(|name| name.split_once('.')) {
        return Some(match name {
            "JSON" => raw_json,
            "JSONSchemaPropsOrArray" => schema_or_array,
            "JSONSchemaPropsOrBool" => schema_or_bool,
            "JSONSchemaPropsOrStringArray" => schema_or_texts,
            _ => return None,
        });
    }
    Some(match name {
        "k8s.io.apimachinery.pkg.api.resource.Quantity" => quantity,
        "k8s.io.apimachinery.pkg.util.intstr.IntOrString" => int_or_string,
        "k8s.io.apimachinery.pkg.runtime.RawExtension" => raw_extension,
        _ => return None,
    })
}

/// Seconds and nanoseconds; an empty message is Go's zero time.
fn instant(bytes: &[u8]) -> Result<Option<(i64, i64)>, String> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let fields = fields(bytes)?;
    Ok(Some((number(&fields, 1), number(&fields, 2))))
}

/// RFC 3339 in whole seconds.
fn time(_: &mut Decoder<'_>, bytes: &[u8], _: &Place<'_>) -> Result<Value, String> {
    Ok(instant(bytes)?.map_or(Value::Null, |(seconds, _)| format!("{}Z", date_time(seconds)).into()))
}

/// RFC 3339 with six digits.
fn micro_time(_: &mut Decoder<'_>, bytes: &[u8], _: &Place<'_>) -> Result<Value, String> {
    let shown = |(seconds, nanos): (i64, i64)| format!("{}.{:06}Z", date_time(seconds), nanos / 1000).into();
    Ok(instant(bytes)?.map_or(Value::Null, shown))
}

/// `2026-11-27T12:00:00` of a Unix time, in the Gregorian calendar
/// (<https://howardhinnant.github.io/date_algorithms.html#civil_from_days>).
fn date_time(seconds: i64) -> String {
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = i128::from(days) + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i128::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// As Go's `time.Duration.String`: `1h0m0s`, `1.5s`, `100ms`.
fn duration(_: &mut Decoder<'_>, bytes: &[u8], _: &Place<'_>) -> Result<Value, String> {
    let nanos = number(&fields(bytes)?, 1);
    let sign = if nanos < 0 { "-" } else { "" };
    let size = nanos.unsigned_abs();
    let text = match size {
        0 => "0s".to_owned(),
        1..1_000 => format!("{size}ns"),
        1_000..1_000_000 => format!("{}µs", decimal(size, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(size, 1_000_000)),
        _ => {
            let (minutes, rest) = (size / 60_000_000_000, size % 60_000_000_000);
            let seconds = format!("{}s", decimal(rest, 1_000_000_000));
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    };
    Ok(format!("{sign}{text}").into())
}

/// A number in a unit of a power of ten, without zeros at the end.
fn decimal(size: u64, unit: u64) -> String {
    let digits = unit.ilog10() as usize;
    let text = format!("{}.{:0digits$}", size / unit, size % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn quantity(_: &mut Decoder<'_>, bytes: &[u8], _: &Place<'_>) -> Result<Value, String> {
    let fields = fields(bytes)?;
    let text = field(&fields, 1).unwrap_or(b"0");
    Ok(std::str::from_utf8(text).map_err(|_| "a quantity that is not UTF-8")?.into())
}

fn int_or_string(_: &mut Decoder<'_>, bytes: &[u8], _: &Place<'_>) -> Result<Value, String> {
    let fields = fields(bytes)?;
    if number(&fields, 1) == 0 {
        return Ok(number(&fields, 2).into());
    }
    let text = field(&fields, 3).unwrap_or_default();
    Ok(std::str::from_utf8(text).map_err(|_| "text that is not UTF-8")?.into())
}

/// Field 1 is JSON.
fn raw_json(_: &mut Decoder<'_>, bytes: &[u8], _: &Place<'_>) -> Result<Value, String> {
    let fields = fields(bytes)?;
    match field(&fields, 1) {
        None | Some(b"") => Ok(Value::Null),
        Some(raw) => serde_json::from_slice(raw).map_err(|error| format!("JSON in the value: {error}")),
    }
}

/// JSON, or a protobuf value with its own envelope.
fn raw_extension(decoder: &mut Decoder<'_>, bytes: &[u8], place: &Place<'_>) -> Result<Value, String> {
    let outer = fields(bytes)?;
    match field(&outer, 1) {
        Some(raw) if raw.starts_with(PROTOBUF_MAGIC) => decoder.enveloped(&envelope(raw)?, place),
        _ => raw_json(decoder, bytes, place),
    }
}

/// A message with two fields of which JSON shows one.
fn parts(decoder: &mut Decoder<'_>, name: &str, bytes: &[u8], place: &Place<'_>) -> Result<Map<String, Value>, String> {
    // All versions have the same message.
    decoder.fields(&format!("{EXTENSIONS}v1.{name}"), bytes, place).map(|(fields, _)| fields)
}

fn schema_or_array(decoder: &mut Decoder<'_>, bytes: &[u8], place: &Place<'_>) -> Result<Value, String> {
    let mut parts = parts(decoder, "JSONSchemaPropsOrArray", bytes, place)?;
    let list = parts.remove("jSONSchemas").filter(|list| list.as_array().is_some_and(|list| !list.is_empty()));
    Ok(list.or_else(|| parts.remove("schema")).unwrap_or(Value::Null))
}

fn schema_or_bool(decoder: &mut Decoder<'_>, bytes: &[u8], place: &Place<'_>) -> Result<Value, String> {
    let mut parts = parts(decoder, "JSONSchemaPropsOrBool", bytes, place)?;
    Ok(parts.remove("schema").or_else(|| parts.remove("allows")).unwrap_or(Value::Bool(false)))
}

fn schema_or_texts(decoder: &mut Decoder<'_>, bytes: &[u8], place: &Place<'_>) -> Result<Value, String> {
    let mut parts = parts(decoder, "JSONSchemaPropsOrStringArray", bytes, place)?;
    let list = parts.remove("property").filter(|list| list.as_array().is_some_and(|list| !list.is_empty()));
    Ok(list.or_else(|| parts.remove("schema")).unwrap_or(Value::Null))
}

fn number(fields: &[crate::decode::Field<'_>], number: u32) -> i64 {
    let found = fields.iter().rev().find(|field| field.number == number);
    match found.map(|field| &field.value) {
        Some(crate::decode::Wire::Varint(value)) => value.cast_signed(),
        _ => 0,
    }
}
