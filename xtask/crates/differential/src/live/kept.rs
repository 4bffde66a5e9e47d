//! Kept sequences: `targets/differential/live/*.json`, and the files of a report.

use std::fs;
use std::path::Path;

use anyhow::Context;
use suite::api::{APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, PROTOBUF, STRATEGIC_PATCH};

use super::finding::Finding;
use super::request::{CBOR, CBOR_APPLY, Family, Request, Sequence, TABLE, Trial, Verb, YAML};
use crate::document::Document;

/// The longest file that is read.
const LONGEST: u64 = 16 << 20;

const MEDIA: [&str; 10] =
    [APPLY_PATCH, CBOR, CBOR_APPLY, JSON, JSON_PATCH, MERGE_PATCH, PROTOBUF, STRATEGIC_PATCH, TABLE, YAML];

/// A finding in the format of the files.
pub(crate) fn write(finding: &Finding) -> String {
    let Sequence { family, resource, requests, keys, settles } = &finding.sequence;
    let requests: Vec<String> = requests.iter().map(|request| format!("  {}", request_document(request))).collect();
    let mut members = vec![
        ("subject", Document::text(&finding.key.subject)),
        ("about", Document::text(finding.key.to_string())),
        ("family", Document::text(family.name())),
        ("resource", Document::text(resource)),
        ("keys", Document::List(keys.iter().map(Document::text).collect())),
    ];
    members.extend(settles.iter().map(|settles| ("settles", Document::text(settles))));
    let members: Vec<String> =
        members.into_iter().map(|(name, value)| format!("{}: {value}", Document::text(name))).collect();
    format!("{{{},\n \"requests\": [\n{}\n]}}\n", members.join(",\n "), requests.join(",\n"))
}

fn request_document(request: &Request) -> Document {
    let mut members = vec![
        ("verb", Document::text(request.verb.name())),
        ("path", Document::text(&request.path)),
        ("query", Document::text(&request.query)),
        ("accept", Document::text(request.accept)),
    ];
    if let Some(body) = &request.body {
        members.push(("content_type", Document::text(request.content_type)));
        // Some literals are valid in YAML only.
        let text = body.to_string();
        let json = Document::parse(&text).is_ok();
        members.push(if json { ("body", body.clone()) } else { ("body_text", Document::text(text)) });
    }
    if let Some(Trial { place, shape, class, value }) = request.trial() {
        let trial = [("place", place.as_str()), ("shape", shape), ("class", class)];
        let mut trial: Vec<(&str, Document)> =
            trial.into_iter().map(|(name, text)| (name, Document::text(text))).collect();
        trial.push(("value", Document::text(value.to_string())));
        members.push(("trial", Document::object(trial)));
    }
    Document::object(members)
}

/// All sequences of a folder, in the order of the files' names. No folder, no sequences.
pub(crate) fn read_all(folder: &Path) -> anyhow::Result<Vec<Sequence>> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

pub(crate) fn read(file: &Path) -> anyhow::Result<Sequence> {
    let read = || -> anyhow::Result<Sequence> {
        anyhow::ensure!(fs::metadata(file)?.len() <= LONGEST, "longer than {LONGEST} bytes");
        parse(&fs::read_to_string(file)?)
    };
    read().with_context(|| format!("failed to read the sequence {}", file.display()))
}

fn parse(text: &str) -> anyhow::Result<Sequence> {
    let document = Document::parse(text)?;
    let family = member(&document, "family")?;
    let requests = document.member("requests").map(Document::inner).unwrap_or_default();
    anyhow::ensure!(!requests.is_empty(), "`requests` has no request");
    Ok(Sequence {
        family: Family::of_name(&family).with_context(|| format!("unknown family `{family}`"))?,
        resource: member(&document, "resource")?,
        requests: requests.into_iter().map(request).collect::<anyhow::Result<_>>()?,
        keys: document
            .member("keys")
            .map(Document::inner)
            .unwrap_or_default()
            .into_iter()
            .flat_map(Document::decoded)
            .collect(),
        settles: document.member("settles").and_then(Document::decoded),
    })
}

fn member(document: &Document, name: &str) -> anyhow::Result<String> {
    document.member(name).and_then(Document::decoded).with_context(|| format!("the text `{name}` is missing"))
}

fn request(document: &Document) -> anyhow::Result<Request> {
    let verb = member(document, "verb")?;
    let verb = Verb::of_name(&verb).with_context(|| format!("unknown verb `{verb}`"))?;
    let mut request = Request::new(verb, member(document, "path")?);
    request.query = member(document, "query")?;
    request.accept = media(&member(document, "accept")?)?;
    let text = document.member("body_text").and_then(Document::decoded);
    // As a number, a text is sent as it is.
    request.body = document.member("body").cloned().or(text.map(Document::Number));
    if request.body.is_some() {
        request.content_type = media(&member(document, "content_type")?)?;
    }
    request.trial = document.member("trial").map(trial).transpose()?;
    Ok(request)
}

fn media(name: &str) -> anyhow::Result<&'static str> {
    MEDIA.into_iter().find(|known| *known == name).with_context(|| format!("unknown media type `{name}`"))
}

fn trial(document: &Document) -> anyhow::Result<Trial> {
    let value = member(document, "value")?;
    Ok(Trial {
        place: member(document, "place")?,
        shape: member(document, "shape")?,
        class: member(document, "class")?,
        value: Document::parse(&value).unwrap_or(Document::Number(value)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::answer::{Answer, Content};
    use crate::live::finding::key;
    use crate::live::play::Difference;

    #[test]
    fn written_sequence_can_be_read_again() {
        let value = Document::Number("1e30".into());
        let mut apply = Request::new(Verb::Apply, "/a/@@").body(Document::object([("n", value.clone())]));
        apply.trial = Some(Trial { place: "n".into(), shape: "integer int32".into(), class: "huge".into(), value });
        let mut yaml = Request::new(Verb::Create, "/a").body(Document::Number("{\"n\":0x10}".into()));
        yaml.content_type = YAML;
        let sequence = Sequence {
            resource: "as".into(),
            requests: vec![apply, yaml, Request::new(Verb::Table, "/a")],
            keys: vec!["a/@@".into()],
            settles: Some("/a/@@".into()),
            ..Sequence::default()
        };
        let answer = |status| Answer { status, headers: Vec::new(), body: Content::Absent };
        let difference = Difference { at: 0, changes: Vec::new(), left: answer(200), right: answer(422), stored: None };
        let finding = Finding {
            key: key(&sequence, &difference),
            count: 1,
            index: None,
            resources: Default::default(),
            sequence: sequence.clone(),
            difference,
            expected: None,
        };
        assert_eq!(parse(&write(&finding)).unwrap(), sequence);
    }

    #[test]
    fn bad_files_are_refused() {
        for text in ["{}", r#"{"family":"x","resource":"r"}"#, r#"{"family":"builtin","resource":"r","requests":[]}"#] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
