//! Rewrites the file of the `junit-report` crate for consumers: adds the attributes of the strict profile, then those
//! of the flavour. Does not change texts.
//!
//! Strict: `testsuites@name,tests,failures,errors,time`,
//! `testsuite@id,name,tests,failures,errors,skipped,time,timestamp,hostname` with `properties`,
//! `testcase@name,classname,time` with one of `skipped`, `error`, `failure`, then `system-out`. It is valid by every
//! schema in use except Ant's, which has no skips.

use anyhow::{Context, Result, anyhow};
use junit_report::Report;
use model::Outcome;
use quick_xml::events::{BytesCData, BytesEnd, BytesStart, Event};
use quick_xml::{Reader, Writer};

use super::suite_builder::{SuiteBuilder, fit, tell_apart};
use super::{Entry, Flavour, JunitOptions, Mark};
use crate::text::XmlText;

/// The bytes of a file with these suites.
pub(super) fn written(mut builders: Vec<SuiteBuilder>, options: &JunitOptions) -> Result<Vec<u8>> {
    tell_apart(&mut builders);
    if options.flavour != Flavour::Surefire {
        builders.iter_mut().for_each(SuiteBuilder::tell_attempts);
    }
    fit(&mut builders);
    let mut report = Report::new();
    report.add_testsuites(builders.iter().map(SuiteBuilder::suite));
    let mut raw = Vec::new();
    report.write_xml(&mut raw).map_err(|error| anyhow!("cannot make junit.xml: {error}"))?;
    let raw = String::from_utf8(raw).context("the JUnit crate wrote something that is not UTF-8")?;
    Rewriting {
        builders: &builders,
        options,
        out: Writer::new(Vec::with_capacity(raw.len() * 2)),
        at: None,
        open: false,
    }
    .all(&raw)
    .context("cannot make junit.xml")
}

/// Walks through the crate's file and in parallel through the suites from which the crate wrote it.
struct Rewriting<'a> {
    builders: &'a [SuiteBuilder],
    options: &'a JunitOptions,
    out: Writer<Vec<u8>>,
    /// The current suite and case.
    at: Option<(usize, Option<usize>)>,
    /// The attempts of the case are not yet written.
    open: bool,
}

impl Rewriting<'_> {
    fn all(mut self, raw: &str) -> Result<Vec<u8>> {
        let mut reader = Reader::from_str(raw);
        loop {
            match reader.read_event()? {
                Event::Eof => break,
                Event::Start(tag) => self.start(tag, false)?,
                Event::Empty(tag) => self.start(tag, true)?,
                Event::End(tag) => {
                    if tag.name().as_ref() == b"testcase" {
                        self.attempts()?;
                    }
                    self.out.write_event(Event::End(tag))?;
                }
                event => self.out.write_event(event)?,
            }
        }
        let mut bytes = self.out.into_inner();
        bytes.push(b'\n');
        Ok(bytes)
    }

    fn start(&mut self, tag: BytesStart<'_>, empty: bool) -> Result<()> {
        let name = String::from_utf8_lossy(tag.name().as_ref()).into_owned();
        match name.as_str() {
            "testsuites" => self.root()?,
            "testsuite" => {
                let index = self.at.map_or(0, |(suite, _)| suite + 1);
                self.at = Some((index, None));
                self.suite(index)?;
            }
            "testcase" => {
                let (suite, case) = self.at.context("a case outside of a suite")?;
                let case = case.map_or(0, |case| case + 1);
                self.at = Some((suite, Some(case)));
                let entry = self.builders[suite].entries.get(case).context("a case that is not in the input")?;
                return self.case(entry, empty);
            }
            // Two of the schemas do not allow a type for a skip.
            "skipped" if self.options.flavour != Flavour::Extended => {
                let mut bare = BytesStart::new("skipped");
                bare.extend_attributes(tag.attributes().flatten().filter(|given| given.key.as_ref() != b"type"));
                let event = if empty { Event::Empty(bare) } else { Event::Start(bare) };
                return Ok(self.out.write_event(event)?);
            }
            _ => {
                if name == "system-out" {
                    self.attempts()?;
                }
                let event = if empty { Event::Empty(tag) } else { Event::Start(tag) };
                return Ok(self.out.write_event(event)?);
            }
        }
        if empty {
            self.out.write_event(Event::End(BytesEnd::new(name)))?;
        }
        Ok(())
    }

    fn root(&mut self) -> Result<()> {
        let sum = |count: fn(&SuiteBuilder) -> usize| self.builders.iter().map(count).sum::<usize>().to_string();
        let mut tag = BytesStart::new("testsuites");
        tag.push_attribute(("name", "archproof"));
        tag.push_attribute(("tests", sum(|builder| builder.entries.len()).as_str()));
        tag.push_attribute(("failures", sum(failures).as_str()));
        tag.push_attribute(("errors", sum(errors).as_str()));
        tag.push_attribute(("time", seconds(self.builders.iter().map(SuiteBuilder::millis).sum()).as_str()));
        self.new_line();
        Ok(self.out.write_event(Event::Start(tag))?)
    }

    fn suite(&mut self, index: usize) -> Result<()> {
        let builder = &self.builders[index];
        let suite = builder.suite_facts();
        let mut tag = BytesStart::new("testsuite");
        tag.push_attribute(("id", index.to_string().as_str()));
        suite.iter().for_each(|(name, value)| tag.push_attribute((*name, value.as_str())));
        self.new_line();
        self.out.write_event(Event::Start(tag))?;
        self.properties(&builder.properties)
    }

    fn case(&mut self, entry: &Entry, empty: bool) -> Result<()> {
        let extended = self.options.flavour == Flavour::Extended;
        self.open = self.options.flavour == Flavour::Surefire && !entry.attempts.is_empty();
        let mut tag = BytesStart::new("testcase");
        tag.push_attribute(("name", entry.name.as_str()));
        tag.push_attribute(("classname", entry.class.as_str()));
        tag.push_attribute(("time", seconds(crate::text::millis(entry.seconds)).as_str()));
        if let Some((file, line)) = self.options.locations.get(&entry.check).filter(|_| extended) {
            tag.push_attribute(("file", XmlText::name(file).as_str()));
            tag.push_attribute(("line", line.to_string().as_str()));
        }
        self.new_line();
        let properties = extended && !entry.properties.is_empty();
        if empty && !properties && !self.open {
            return Ok(self.out.write_event(Event::Empty(tag))?);
        }
        self.out.write_event(Event::Start(tag))?;
        if properties {
            self.properties(&entry.properties)?;
        }
        if empty {
            self.attempts()?;
            self.out.write_event(Event::End(BytesEnd::new("testcase")))?;
        }
        Ok(())
    }

    fn properties(&mut self, properties: &[(String, String)]) -> Result<()> {
        if properties.is_empty() {
            return Ok(());
        }
        self.out.write_event(Event::Start(BytesStart::new("properties")))?;
        for (name, value) in properties {
            let mut tag = BytesStart::new("property");
            tag.push_attribute(("name", XmlText::name(name).as_str()));
            tag.push_attribute(("value", XmlText::name(value).as_str()));
            self.out.write_event(Event::Empty(tag))?;
        }
        Ok(self.out.write_event(Event::End(BytesEnd::new("properties")))?)
    }

    /// Writes the attempts of the case once, at the place that Surefire uses: after the result, before the output.
    fn attempts(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        let Some((suite, Some(case))) = self.at else { return Ok(()) };
        let entry = &self.builders[suite].entries[case];
        for attempt in &entry.attempts {
            let kind = match attempt.outcome {
                Outcome::Failed { .. } | Outcome::UnexpectedPass { .. } => "Failure",
                Outcome::Errored { .. } | Outcome::TimedOut { .. } => "Error",
                Outcome::Passed | Outcome::Skipped { .. } | Outcome::ExpectedFailure { .. } => continue,
            };
            let prefix = if entry.is_red() { "rerun" } else { "flaky" };
            let name = format!("{prefix}{kind}");
            let mut tag = BytesStart::new(name.as_str());
            tag.push_attribute(("message", XmlText::message(attempt.outcome.message()).as_str()));
            tag.push_attribute(("type", attempt.outcome.word()));
            self.out.write_event(Event::Start(tag))?;
            self.out.write_event(Event::Start(BytesStart::new("system-out")))?;
            let run = XmlText::output(format!("run {}", attempt.run)).cdata();
            self.out.write_event(Event::CData(BytesCData::new(run)))?;
            self.out.write_event(Event::End(BytesEnd::new("system-out")))?;
            self.out.write_event(Event::End(BytesEnd::new(name.as_str())))?;
        }
        Ok(())
    }

    /// Used between elements only, so that people and `diff` get lines.
    fn new_line(&mut self) {
        self.out.get_mut().push(b'\n');
    }
}

impl SuiteBuilder {
    /// The attributes after `id`.
    fn suite_facts(&self) -> [(&'static str, String); 8] {
        [
            ("name", XmlText::name(&self.name).as_str().to_owned()),
            ("tests", self.entries.len().to_string()),
            ("failures", failures(self).to_string()),
            ("errors", errors(self).to_string()),
            ("skipped", self.count(|mark| matches!(mark, Mark::Skipped)).to_string()),
            ("time", seconds(self.millis())),
            ("timestamp", self.timestamp()),
            ("hostname", XmlText::message(&self.host).as_str().to_owned()),
        ]
    }

    /// Precise to the second; 1970 if the start is not a valid time.
    fn timestamp(&self) -> String {
        let started = self.started.parse::<jiff::Timestamp>().ok().filter(|time| time.as_second() >= 0);
        started.unwrap_or(jiff::Timestamp::UNIX_EPOCH).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

fn failures(builder: &SuiteBuilder) -> usize {
    builder.count(|mark| matches!(mark, Mark::Failure))
}

fn errors(builder: &SuiteBuilder) -> usize {
    builder.count(|mark| matches!(mark, Mark::Error))
}

/// Always three digits: some readers do not know exponents.
fn seconds(millis: u64) -> String {
    format!("{}.{:03}", millis / 1000, millis % 1000)
}
