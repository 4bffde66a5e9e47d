//! Writes the file: the elements and attributes of the strict profile, and those that the flavour adds.
//!
//! Strict: `testsuites@name,tests,failures,errors,time`,
//! `testsuite@id,name,tests,failures,errors,skipped,time,timestamp,hostname` with `properties`,
//! `testcase@name,classname,time` with one of `skipped`, `error`, `failure`, then `system-out`. It is valid by every
//! schema in use except Ant's, which has no skips.

use std::io;

use anyhow::{Context, Result};
use model::Outcome;
use quick_xml::events::{BytesCData, BytesDecl, Event};
use quick_xml::{ElementWriter, Writer};

use super::suite_builder::{SuiteBuilder, fit, tell_apart};
use super::{Entry, Flavour, JunitOptions, Mark};
use crate::joint::Attempt;
use crate::text::{XmlText, millis};

type Xml = Writer<Vec<u8>>;

/// The bytes of a file with these suites.
pub(super) fn written(mut builders: Vec<SuiteBuilder>, options: &JunitOptions) -> Result<Vec<u8>> {
    tell_apart(&mut builders);
    if options.flavour != Flavour::Surefire {
        builders.iter_mut().for_each(SuiteBuilder::tell_attempts);
    }
    fit(&mut builders);
    let mut out = Writer::new(Vec::new());
    file(&mut out, &builders, options).context("cannot make junit.xml")?;
    new_line(&mut out);
    Ok(out.into_inner())
}

fn file(out: &mut Xml, builders: &[SuiteBuilder], options: &JunitOptions) -> io::Result<()> {
    let sum = |count: fn(&SuiteBuilder) -> usize| builders.iter().map(count).sum::<usize>().to_string();
    let attributes = [
        ("name", "archproof".to_owned()),
        ("tests", sum(|builder| builder.entries.len())),
        ("failures", sum(failures)),
        ("errors", sum(errors)),
        ("time", seconds(builders.iter().map(SuiteBuilder::millis).sum())),
    ];
    out.write_event(Event::Decl(BytesDecl::new("1.0", Some("utf-8"), None)))?;
    new_line(out);
    let mut numbered = builders.iter().enumerate();
    let root = element(out, "testsuites", &attributes);
    root.write_inner_content(|out| numbered.try_for_each(|(id, builder)| suite(out, id, builder, options)))?;
    Ok(())
}

fn suite(out: &mut Xml, id: usize, builder: &SuiteBuilder, options: &JunitOptions) -> io::Result<()> {
    let attributes = [
        ("id", id.to_string()),
        ("name", XmlText::name(&builder.name).to_string()),
        ("tests", builder.entries.len().to_string()),
        ("failures", failures(builder).to_string()),
        ("errors", errors(builder).to_string()),
        ("skipped", builder.count(|mark| matches!(mark, Mark::Skipped)).to_string()),
        ("time", seconds(builder.millis())),
        ("timestamp", timestamp(&builder.started)),
        ("hostname", XmlText::message(&builder.host).to_string()),
    ];
    new_line(out);
    element(out, "testsuite", &attributes).write_inner_content(|out| {
        properties(out, &builder.properties)?;
        builder.entries.iter().try_for_each(|entry| case(out, entry, options))?;
        output(out, builder.output.as_ref())
    })?;
    Ok(())
}

fn case(out: &mut Xml, entry: &Entry, options: &JunitOptions) -> io::Result<()> {
    let extended = options.flavour == Flavour::Extended;
    let mut attributes = vec![
        ("name", entry.name.to_string()),
        ("classname", entry.class.to_string()),
        ("time", seconds(millis(entry.seconds))),
    ];
    if let Some((file, line)) = options.locations.get(&entry.check).filter(|_| extended) {
        attributes.extend([("file", XmlText::name(file).to_string()), ("line", line.to_string())]);
    }
    let properties = if extended { &entry.properties[..] } else { &[] };
    let attempts = if options.flavour == Flavour::Surefire { &entry.attempts[..] } else { &[] };
    new_line(out);
    let case = element(out, "testcase", &attributes);
    let is_bare = matches!(entry.mark, Mark::Success) && entry.output.is_none();
    if is_bare && properties.is_empty() && attempts.is_empty() {
        case.write_empty()?;
        return Ok(());
    }
    case.write_inner_content(|out| {
        self::properties(out, properties)?;
        result(out, entry, extended)?;
        attempts.iter().try_for_each(|attempt| replaced(out, attempt, entry.is_red()))?;
        output(out, entry.output.as_ref())
    })?;
    Ok(())
}

fn properties(out: &mut Xml, properties: &[(String, String)]) -> io::Result<()> {
    if properties.is_empty() {
        return Ok(());
    }
    out.create_element("properties").write_inner_content(|out| {
        properties.iter().try_for_each(|(name, value)| {
            let attributes = [("name", name), ("value", value)];
            let attributes = attributes.map(|(attribute, text)| (attribute, XmlText::name(text).to_string()));
            element(out, "property", &attributes).write_empty().map(drop)
        })
    })?;
    Ok(())
}

fn result(out: &mut Xml, entry: &Entry, extended: bool) -> io::Result<()> {
    let (name, has_type) = match entry.mark {
        Mark::Success => return Ok(()),
        // Two of the schemas do not allow a type for a skip.
        Mark::Skipped => ("skipped", extended),
        Mark::Failure => ("failure", true),
        Mark::Error => ("error", true),
    };
    let attributes = [("type", entry.kind.to_owned()), ("message", entry.message.to_string())];
    let attributes = if has_type { &attributes[..] } else { &attributes[1..] };
    element(out, name, attributes).write_cdata_content(BytesCData::new(entry.text.cdata()))?;
    Ok(())
}

/// A replaced attempt, at the place that Surefire uses: after the result, before the output.
fn replaced(out: &mut Xml, attempt: &Attempt, is_red: bool) -> io::Result<()> {
    let kind = match attempt.outcome {
        Outcome::Failed { .. } | Outcome::UnexpectedPass { .. } => "Failure",
        Outcome::Errored { .. } | Outcome::TimedOut { .. } => "Error",
        Outcome::Passed | Outcome::Skipped { .. } | Outcome::ExpectedFailure { .. } => return Ok(()),
    };
    let name = format!("{}{kind}", if is_red { "rerun" } else { "flaky" });
    let message = XmlText::message(attempt.outcome.message()).to_string();
    let attributes = [("message", message), ("type", attempt.outcome.word().to_owned())];
    let run = XmlText::output(format!("run {}", attempt.run));
    element(out, &name, &attributes).write_inner_content(|out| output(out, Some(&run)))?;
    Ok(())
}

fn output(out: &mut Xml, text: Option<&XmlText>) -> io::Result<()> {
    if let Some(text) = text {
        out.create_element("system-out").write_cdata_content(BytesCData::new(text.cdata()))?;
    }
    Ok(())
}

fn element<'a>(out: &'a mut Xml, name: &'a str, attributes: &[(&str, String)]) -> ElementWriter<'a, Vec<u8>> {
    out.create_element(name).with_attributes(attributes.iter().map(|(name, value)| (*name, value.as_str())))
}

/// Used between elements only, so that people and `diff` get lines.
fn new_line(out: &mut Xml) {
    out.get_mut().push(b'\n');
}

fn failures(builder: &SuiteBuilder) -> usize {
    builder.count(|mark| matches!(mark, Mark::Failure))
}

fn errors(builder: &SuiteBuilder) -> usize {
    builder.count(|mark| matches!(mark, Mark::Error))
}

/// Precise to the second; 1970 if the start is not a valid time.
fn timestamp(started: &str) -> String {
    let started = started.parse::<jiff::Timestamp>().ok().filter(|time| time.as_second() >= 0);
    started.unwrap_or(jiff::Timestamp::UNIX_EPOCH).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Always three digits: some readers do not know exponents.
fn seconds(millis: u64) -> String {
    format!("{}.{:03}", millis / 1000, millis % 1000)
}
