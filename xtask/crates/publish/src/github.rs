//! Annotations and pages for GitHub Actions. `cli::github` writes them.

use std::fmt::Write;

use cli::github::escape;
use report::results::{CaseResult, Results, RunResult};
use report::text::{cut_end, plain};
use report::{Child, SourceLocations, cell};

use crate::gate::{Gate, GateStatus};

/// GitHub shows ten annotations of a kind per step. If there are more, the last one counts the rest.
const ANNOTATIONS: usize = 10;
/// Longest message of an annotation; the GitHub page shows a few lines.
const MESSAGE_BYTES: usize = 2 << 10;

/// An error for each case, phase or run that is not as expected, conformance failures first. At most ten; the last one
/// counts the rest. A warning for each flaky case.
pub(crate) fn annotations(children: &[Child], locations: &SourceLocations) -> Vec<String> {
    let results = Results::of(children);
    let all = || results.runs.iter().flat_map(|run| run.cases.iter().map(move |case| (run, case)));
    let broken = all().filter(|(_, case)| case.outcome.is_broken());
    let others = all().filter(|(_, case)| case.outcome.is_red() && !case.outcome.is_broken());
    let mut errors: Vec<String> = broken.chain(others).map(|(run, case)| of_case(run, case, locations)).collect();
    for run in &results.runs {
        for phase in run.phases.iter().filter(|phase| phase.outcome.is_red()) {
            let title = format!("{}: {} {}", run.arch, phase.name, phase.outcome.text());
            errors.push(annotation("error", &title, None, &phase.message));
        }
        let silent =
            run.cases.iter().all(|case| !case.outcome.is_red()) && run.phases.iter().all(|p| !p.outcome.is_red());
        if !run.verdict.is_ok() && silent {
            let why = run.trouble.as_ref().or(run.cut_short.as_ref()).unwrap_or(&run.verdict.meaning);
            errors.push(annotation("error", &format!("{}: {}", run.arch, run.verdict.meaning), None, why));
        }
    }
    let flaky = all().filter(|(_, case)| case.is_flaky());
    let told = |(run, case): (&RunResult, &CaseResult)| {
        let title = format!("{} on {}: flaky", case.name, run.arch);
        annotation("warning", &title, locations.get(&case.check), "it passed only in a later attempt")
    };
    [limited(errors, "error"), limited(flaky.map(told).collect(), "warning")].concat()
}

/// The annotations of a gate: an error for each reason to close it, a warning for experimental and additional runs.
pub(crate) fn gate_annotations(gate: &Gate) -> Vec<String> {
    let with = |standing: GateStatus, kind: &str| -> Vec<String> {
        let archs = gate.architectures.iter().filter(|arch| arch.standing == standing);
        let text = archs
            .map(|arch| annotation(kind, &format!("{}: {}", arch.arch, standing.word()), None, &arch.why.join("\n")));
        text.collect()
    };
    let refused = gate.refused.iter().map(|why| annotation("error", "a result is refused", None, why));
    let noted = gate.architectures.iter().filter(|arch| !(arch.notes.is_empty() && arch.differences.is_empty()));
    let noted = noted.map(|arch| {
        let text = [&arch.notes[..], &arch.differences[..]].concat().join("\n");
        annotation("warning", &format!("{}: additional runs", arch.arch), None, &text)
    });
    let errors = with(GateStatus::Failed, "error").into_iter().chain(refused).collect();
    let warnings = with(GateStatus::Warning, "warning").into_iter().chain(noted).collect();
    [limited(errors, "error"), limited(warnings, "warning")].concat()
}

/// The gate as a Markdown page for the step summary.
pub(crate) fn gate_page(gate: &Gate) -> String {
    let mut page = format!("# Gate: {} (exit {})\n\n", if gate.passed { "passed" } else { "closed" }, gate.code);
    page += "| architecture | | cases | why |\n| --- | --- | --- | --- |\n";
    for arch in &gate.architectures {
        let experimental = if arch.experimental { " (experimental)" } else { "" };
        let why = arch.why.iter().chain(&arch.notes).chain(&arch.differences).cloned();
        let why = why.chain(arch.flaky.iter().map(|case| format!("flaky: {case}")));
        let why = why.collect::<Vec<_>>().join("; ");
        let (counts, word) = (arch.counts.sentence(), arch.standing.word());
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| {}{experimental} | {word} | {counts} | {} |", cell(&arch.arch), cell(&why));
    }
    page += "\n";
    gate.refused.iter().for_each(|why| page += &format!("- {}\n", cell(why)));
    page
}

fn limited(mut all: Vec<String>, kind: &str) -> Vec<String> {
    if all.len() > ANNOTATIONS {
        let more = all.len() - (ANNOTATIONS - 1);
        all.truncate(ANNOTATIONS - 1);
        all.push(annotation(kind, &format!("{more} more"), None, "they are in the step summary and in junit.xml"));
    }
    all
}

fn of_case(run: &RunResult, case: &CaseResult, locations: &SourceLocations) -> String {
    let title = format!("{} on {}: {}", case.name, run.arch, case.outcome.text());
    let mut message = case.message.clone();
    if !case.requirement.is_empty() {
        message += &format!("\nRequirement: {}", case.requirement);
    }
    if !case.repeat.is_empty() {
        message += &format!("\nRepeat: {}", case.repeat);
    }
    annotation("error", &title, locations.get(&case.check), &message)
}

fn annotation(kind: &str, title: &str, place: Option<&(String, usize)>, message: &str) -> String {
    let place = place.map_or_else(String::new, |(file, line)| format!("file={},line={line},", property(file)));
    let message = cut_end(&plain(message), MESSAGE_BYTES);
    format!("::{kind} {place}title={}::{}\n", property(&cut_end(&plain(title), 255)), escape(&message))
}

fn property(text: &str) -> String {
    escape(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use model::{Exit, Outcome};

    use super::*;
    use crate::fixture;

    #[test]
    fn red_cases_are_annotated_at_their_source_line() {
        let locations = [("watch.ordered".to_owned(), ("checks/a,b.rs".to_owned(), 7))].into();
        let all = annotations(&[Child::of(fixture::run())], &locations);
        #[rustfmt::skip]
        let wanted = [
            "::error title=storage.c on mix64%3A unexpected pass::passed, but a failure is expected: https://example.org/issues/7%0ARequirement: What storage.c asks for.%0ARepeat: cargo xtask ci --check storage.c --seed 42\n",
            "::error file=checks/a%2Cb.rs,line=7,title=watch.ordered on mix64%3A failed::revision 7 was delivered after 9%0Ain stream 3%0ARequirement: What watch.ordered asks for.%0ARepeat: cargo xtask ci --check watch.ordered --seed 42\n",
        ];
        assert_eq!(all[..2], wanted);
        assert_eq!(all.len(), 4, "{all:?}");
        let nothing = annotations(&[Child::of(vec![fixture::started(), fixture::finished(Exit::Ok)])], &locations);
        assert_eq!(nothing, ["::error title=mix64%3A nothing ran::nothing ran\n"]);
    }

    #[test]
    fn hostile_text_makes_no_command_and_annotations_stop_at_ten() {
        for text in fixture::hostile_texts() {
            let text = format!("{text}\n::error::mine\r\n::add-mask::x");
            for line in annotations(&[Child::of(fixture::hostile(&text))], &SourceLocations::new()) {
                assert!(
                    line.ends_with('\n') && line.trim_end().lines().count() == 1 && !line.contains('\r'),
                    "{line:?}"
                );
                assert!(line.starts_with("::error "), "{line:?}");
            }
        }
        let mut events = vec![fixture::started()];
        events.extend((0..30).map(|number| fixture::case(&format!("a.n{number}"), Outcome::failed("x"))));
        events.push(fixture::finished(Exit::Conformance));
        let all = annotations(&[Child::of(events)], &SourceLocations::new());
        assert_eq!(all.len(), 10);
        assert!(all[9].starts_with("::error title=21 more::"), "{}", all[9]);
    }
}
