//! One running program of the library level, and its protocol: `targets/programs/differential/main.go`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sys::Dialogue;

use crate::document::Document;

/// Time for one request. The search keeps requests below a few seconds.
const LIMIT: Duration = Duration::from_secs(600);

/// How to start a program for one architecture.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// GOARCH.
    pub(crate) arch: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// `native`, or the emulator.
    pub(crate) execution: String,
    /// The folder for logs.
    pub(crate) logs: PathBuf,
}

/// A running program.
#[derive(Debug)]
pub(crate) struct Side {
    dialogue: Dialogue,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) about: String,
}

/// A defect that the program can have on request.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) subject: String,
}

/// A part of the inputs of a subject.
#[derive(Clone, Debug)]
pub(crate) struct Span<'a> {
    pub(crate) subject: &'a str,
    pub(crate) seed: u64,
    pub(crate) from: u64,
    pub(crate) count: u64,
}

/// One input with its answer.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) index: u64,
    pub(crate) input: Document,
    pub(crate) answer: Document,
    pub(crate) class: String,
    /// The program cannot have got such an input from its generator.
    pub(crate) invalid: bool,
    /// The rule that the answer breaks on any architecture.
    pub(crate) violates: Option<Violation>,
}

/// A rule that an answer breaks: a defect that one architecture alone shows.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Violation {
    /// The number of the input; 0 in a [`Case`], which has its own.
    #[serde(default)]
    pub(crate) index: u64,
    pub(crate) oracle: String,
    pub(crate) class: String,
    /// What is wrong, for people.
    pub(crate) text: String,
}

/// The answers to many inputs, in short.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Digests {
    /// One for each batch.
    pub(crate) digests: Vec<String>,
    /// The first of each oracle and class in each batch.
    pub(crate) violations: Option<Vec<Violation>>,
}

impl Case {
    /// Whether both sides made the same input and gave the same answer.
    pub(crate) fn agrees(&self, other: &Case) -> bool {
        self.input == other.input && self.answer == other.answer && self.invalid == other.invalid
    }
}

#[derive(Deserialize)]
struct RawCase<'a> {
    index: u64,
    #[serde(borrow)]
    input: &'a RawValue,
    #[serde(borrow)]
    answer: &'a RawValue,
    #[serde(default)]
    class: String,
    #[serde(default)]
    invalid: bool,
    violates: Option<Violation>,
}

impl Side {
    /// `role` is part of messages and of the log's name.
    pub(crate) fn start(launch: &Launch, role: &str) -> anyhow::Result<Side> {
        let log = launch.logs.join(format!("differential-{role}.log"));
        let name = format!("the program differential of {} ({role})", launch.arch);
        Ok(Side { dialogue: Dialogue::start(&name, &launch.program, &launch.args, &log)? })
    }

    pub(crate) fn subjects(&mut self) -> anyhow::Result<Vec<Subject>> {
        self.list("subjects")
    }

    pub(crate) fn mutants(&mut self) -> anyhow::Result<Vec<Mutant>> {
        self.list("mutants")
    }

    /// Gives the program a defect.
    pub(crate) fn mutate(&mut self, mutant: &str) -> anyhow::Result<()> {
        self.ask(&json!({"op": "mutate", "mutant": mutant})).map(drop)
    }

    /// A digest for each `batch` of inputs.
    pub(crate) fn digests(&mut self, span: &Span<'_>, batch: u64) -> anyhow::Result<Digests> {
        let Span { subject, seed, from, count } = span;
        let answer = self.ask(&json!({
            "op": "digests", "subject": subject, "seed": seed, "from": from, "count": count, "batch": batch,
        }))?;
        let answer: Digests = parsed(&answer)?;
        if answer.digests.len() as u64 != count.div_ceil(batch) {
            bail!("{} digests for {count} inputs in batches of {batch}", answer.digests.len());
        }
        Ok(answer)
    }

    pub(crate) fn cases(&mut self, span: &Span<'_>) -> anyhow::Result<Vec<Case>> {
        let Span { subject, seed, from, count } = span;
        let answer = self.ask(&json!({
            "op": "cases", "subject": subject, "seed": seed, "from": from, "count": count,
        }))?;
        cases(&answer, usize::try_from(*count)?)
    }

    pub(crate) fn evaluate(&mut self, subject: &str, inputs: &[Document]) -> anyhow::Result<Vec<Case>> {
        let list = Document::List(inputs.to_vec()).to_string();
        let subject = Value::from(subject);
        let answer = self.ask_text(&format!(r#"{{"op":"evaluate","subject":{subject},"inputs":{list}}}"#))?;
        cases(&answer, inputs.len())
    }

    fn list<T: DeserializeOwned>(&mut self, name: &str) -> anyhow::Result<Vec<T>> {
        let answer = self.ask(&json!({"op": name}))?;
        let mut members: serde_json::Map<String, Value> = parsed(&answer)?;
        let list = members.remove(name).with_context(|| format!("an answer without `{name}`"))?;
        serde_json::from_value(list).with_context(|| format!("a malformed list of {name}"))
    }

    fn ask(&mut self, request: &Value) -> anyhow::Result<String> {
        self.ask_text(&request.to_string())
    }

    fn ask_text(&mut self, request: &str) -> anyhow::Result<String> {
        #[derive(Deserialize)]
        struct Refused {
            error: String,
        }
        let answer = self.dialogue.ask(request, LIMIT)?;
        match serde_json::from_str::<Refused>(&answer) {
            Ok(Refused { error }) => bail!("the program differential refused a request: {error}"),
            Err(_) => Ok(answer),
        }
    }
}

fn parsed<'a, T: Deserialize<'a>>(answer: &'a str) -> anyhow::Result<T> {
    serde_json::from_str(answer).context("a malformed answer of the program differential")
}

fn cases(answer: &str, count: usize) -> anyhow::Result<Vec<Case>> {
    #[derive(Deserialize)]
    struct Cases<'a> {
        #[serde(borrow)]
        cases: Vec<RawCase<'a>>,
    }
    let Cases { cases } = parsed(answer)?;
    if cases.len() != count {
        bail!("{} answers for {count} inputs", cases.len());
    }
    let read = |case: RawCase<'_>| {
        let (input, answer) = (Document::parse(case.input.get())?, Document::parse(case.answer.get())?);
        let RawCase { index, class, invalid, violates, .. } = case;
        Ok(Case { index, input, answer, class, invalid, violates })
    };
    cases.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_keep_the_spelling_of_numbers() {
        let answer = r#"{"cases":[{"index":3,"input":{"n":1e30},"answer":-0.0},{"index":4,"input":1,"answer":null,"invalid":true}]}"#;
        let read = cases(answer, 2).unwrap();
        assert_eq!((read[0].input.to_string(), read[0].answer.to_string()), (r#"{"n":1e30}"#.into(), "-0.0".into()));
        assert!(read[1].invalid && !read[0].agrees(&read[1]));
        assert!(cases(answer, 3).is_err() && cases("{}", 0).is_err());
    }
}
