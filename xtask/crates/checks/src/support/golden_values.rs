//! Values that must be the same on every machine: writes them to the run's folder and compares them with
//! `targets/golden/`.

use std::path::Path;

use anyhow::Context;
use model::GoldenValue;

use crate::support::stored_bytes::sha256;
use suite::prelude::*;

/// A value of this run, ready to be compared.
pub(crate) struct FixedValue {
    pub(crate) name: String,
    /// One of those that a golden file may have: `protobuf`, `text`.
    pub(crate) encoding: &'static str,
    pub(crate) bytes: Vec<u8>,
}

/// Writes the values to the run's folder `values` and compares them with the release's golden values. Skips the check if
/// the release has none of them.
pub(crate) fn compare(ctx: &Ctx, values: &[FixedValue]) -> Verdict {
    write(ctx, values).context("failed to write the values to the run's folder")?;
    ctx.count("values", values.len() as u64);
    ctx.count("bytes", values.iter().map(|value| value.bytes.len() as u64).sum());
    let golden = &ctx.env.references.golden;
    if !golden.iter().any(|row| values.iter().any(|value| value.name == row.name)) {
        let need = "golden values: targets/golden/ has none for this release; see `cargo xtask compare --help`";
        return Err(CheckError::Skipped { need: need.into() });
    }
    let faults: Vec<String> = values.iter().filter_map(|value| fault(value, golden)).collect();
    if faults.is_empty() {
        return Ok(());
    }
    let message = format!("{} of {} values: {}", faults.len(), values.len(), faults[0]);
    let compare = "`cargo xtask compare RUN RUN` with a run that passed shows the first field that differs".to_owned();
    Err(CheckError::Failed { message, evidence: faults.into_iter().chain([compare]).collect() })
}

/// Compares a value with the release's golden values.
fn fault(value: &FixedValue, golden: &[GoldenValue]) -> Option<String> {
    let FixedValue { name, encoding, bytes } = value;
    let Some(row) = golden.iter().find(|row| row.name == *name && row.encoding == *encoding) else {
        return Some(format!("{name} has the encoding {encoding}, which targets/golden/ does not have for it"));
    };
    let (length, digest) = (bytes.len(), sha256(bytes));
    let differs = length != row.length || digest != row.sha256;
    differs.then(|| {
        let (right, sha256) = (row.length, &row.sha256);
        let seen = if *encoding == "text" { format!("{:?}, ", String::from_utf8_lossy(bytes)) } else { String::new() };
        format!("{name} as {encoding} is {seen}{length} bytes with SHA-256 {digest}, must have {right} with {sha256}")
    })
}

/// One file for each value: `values/PROFILE/NAME.ENCODING`.
fn write(ctx: &Ctx, values: &[FixedValue]) -> anyhow::Result<()> {
    let folder = ctx.env.references.values.join(&ctx.profile().name);
    let place = |path: &Path| format!("failed to write {}", path.display());
    std::fs::create_dir_all(&folder).with_context(|| place(&folder))?;
    for FixedValue { name, encoding, bytes } in values {
        let file = folder.join(format!("{name}.{encoding}"));
        std::fs::write(&file, bytes).with_context(|| place(&file))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_length_digest_or_row_is_a_fault() {
        let value = |encoding| FixedValue { name: "a".into(), encoding, bytes: b"abc".to_vec() };
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let row = GoldenValue { name: "a".into(), encoding: "json".into(), length: 3, sha256: sha256.into() };
        assert_eq!(fault(&value("json"), std::slice::from_ref(&row)), None);
        let text = GoldenValue { encoding: "text".into(), length: 4, ..row.clone() };
        for (encoding, row, part) in [
            ("yaml", row.clone(), "does not have"),
            ("json", GoldenValue { name: "b".into(), ..row.clone() }, "does not have"),
            ("json", GoldenValue { length: 4, ..row.clone() }, "must have 4"),
            ("json", GoldenValue { sha256: "0".repeat(64), ..row }, "with 0000"),
            ("text", text, "is \"abc\", 3 bytes"),
        ] {
            let fault = fault(&value(encoding), &[row]).unwrap_or_default();
            assert!(fault.contains(part), "{fault}");
        }
    }
}
