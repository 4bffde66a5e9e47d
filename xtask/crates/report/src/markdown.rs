//! `summary.md`: the run for people. GitHub shows it on the page of a workflow run.

use model::{Event, Exit};

use crate::counts::{Counts, WORDS, Word};
use crate::text::{cut_end, cut_middle, duration, millis, plain, plain_line, title};
use crate::verdict;
use crate::view::{Case, View};
use crate::{hardware, machine};

/// GitHub refuses a step summary over 1 MiB; the difference is room for text of the caller.
pub(crate) const FILE_BYTES: usize = 900 << 10;
/// When the file has this size, cases are no longer shown in full.
const DETAILS_BYTES: usize = 700 << 10;
/// Longest text in a table or a paragraph.
const CELL_BYTES: usize = 400;
/// Longest message, and longest evidence, of one case.
const BLOCK_BYTES: usize = 4 << 10;
/// Rows of "Slowest cases".
const SLOWEST: usize = 10;

/// The text of the file: verdict, facts, counts, every case that did not pass, limits of the run, phases, slowest cases. At most 900 KiB.
pub fn markdown(events: &[Event]) -> String {
    let view = View::of(events);
    let mut page = verdict_line(&view, events);
    page += &facts(&view);
    page += &counts(&view);
    page += &details(&view, "Not as expected");
    page += &short_rows(&view, "Expected failures", "expected failure");
    page += &short_rows(&view, "Skipped", "skipped");
    page += &not_shown(&view);
    page += &notes(&view);
    page += &phases(&view);
    page += &slowest(&view);
    cut_middle(page, FILE_BYTES)
}

fn verdict_line(view: &View<'_>, events: &[Event]) -> String {
    let exit = verdict::exit(events);
    let subject = format!("{}, provider {}", view.arch(), view.provider());
    let mut text = format!("# {}: {} (exit {})\n\n", cell(&subject), title(&exit.to_string()), exit.code());
    text += &format!("{}.\n\n", view.counts().sentence());
    if let Some(why) = view.cut_short() {
        text += &format!("**{}.**\n\n", cell(&title(&why)));
    }
    text
}

fn facts(view: &View<'_>) -> String {
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut row = |name: &str, value: &str| rows.push((name.to_owned(), value.to_owned()));
    row("architecture", view.arch());
    row("provider", view.provider());
    if let Some(booted) = &view.booted {
        row("execution", booted.execution);
        row("slowdown factor", &format!("{:.2}", booted.factor));
        booted.versions.iter().for_each(|(server, version)| row(server, version));
    }
    if let Some(machine) = view.machine() {
        machine::facts(machine).iter().for_each(|(name, value)| row(name, value));
    }
    if let Some(hardware) = view.hardware() {
        hardware::facts(hardware).iter().for_each(|(name, value)| row(name, value));
    }
    if let Some(run) = view.run {
        run.sources.iter().for_each(|(set, source)| row(&format!("source of {set}"), source));
        run.shard.iter().for_each(|shard| row("shard", shard));
        row("seed", &run.seed.to_string());
        row("host", &run.host);
        row("harness", &run.harness);
        row("run", &run.id);
        row("started", &run.started);
    }
    if let Some((_, seconds)) = view.finished {
        row("duration", &duration(seconds));
    }
    let rows: String = rows.iter().map(|(name, value)| format!("| {} | {} |\n", cell(name), cell(value))).collect();
    let repeat = view.run.map_or_else(String::new, |run| fenced("sh", &run.command));
    format!("| | |\n| --- | --- |\n{rows}\n{repeat}")
}

fn counts(view: &View<'_>) -> String {
    let line = |name: &str, counts: Counts| {
        let numbers: String = counts.iter().map(|(_, number)| format!(" {number} |")).collect();
        format!("| {name} |{numbers}\n")
    };
    let mut text = format!("## Cases\n\n| group | {} |\n| --- |{}\n", WORDS.join(" | "), " ---: |".repeat(WORDS.len()));
    for (group, cases) in view.by_group() {
        text += &line(&cell(group), cases.iter().map(|case| Word::of(&case.outcome)).collect());
    }
    text + &line("all", view.counts()) + "\n"
}

/// Every case that makes a run red, conformance failures first.
pub(crate) fn details(view: &View<'_>, heading: &str) -> String {
    let of_word = |word: &'static str| view.cases.iter().filter(move |case| case.outcome.word() == word);
    let red: Vec<&Case<'_>> =
        WORDS.into_iter().flat_map(of_word).filter(|case| case.outcome.exit() != Exit::Ok).collect();
    if red.is_empty() {
        return String::new();
    }
    let mut text = format!("## {}\n\n", cell(heading));
    for (shown, case) in red.iter().enumerate() {
        if text.len() > DETAILS_BYTES {
            return text + &format!("{} more are in `junit.xml`.\n\n", red.len() - shown);
        }
        text += &detail(case);
    }
    text
}

fn detail(case: &Case<'_>) -> String {
    let mut text = format!("### {}: {}\n\n", cell(case.name), case.outcome.word());
    text += &fenced("text", &case.outcome.message());
    let evidence = case.outcome.evidence();
    if !evidence.is_empty() {
        text += &format!("Evidence:\n\n{}", fenced("text", &evidence.join("\n")));
    }
    if let Some(facts) = &case.facts {
        text += &format!("Requirement ({}): {}\n\n", facts.level_word(), cell(facts.requirement));
        text += &format!("Source: {}\n\n", link(facts.source));
        text += &fenced("sh", facts.repeat);
    }
    text
}

/// The cases with this outcome, one per row.
fn short_rows(view: &View<'_>, heading: &str, word: &str) -> String {
    let cases: Vec<&Case<'_>> = view.cases.iter().filter(|case| case.outcome.word() == word).collect();
    if cases.is_empty() {
        return String::new();
    }
    let mut text = format!("## {heading}\n\n| case | why | requirement | repeat |\n| --- | --- | --- | --- |\n");
    for (shown, case) in cases.iter().enumerate() {
        if text.len() > DETAILS_BYTES / 8 {
            text += &format!("| {} more are in `junit.xml` | | | |\n", cases.len() - shown);
            break;
        }
        let requirement = case.facts.as_ref().map_or("", |facts| facts.requirement);
        let cells = [case.name, &case.outcome.message(), requirement, case.repeat()].map(cell);
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text + "\n"
}

fn not_shown(view: &View<'_>) -> String {
    let entries = hardware::not_shown(view);
    if entries.is_empty() {
        return String::new();
    }
    let lines: String = entries.iter().map(|entry| format!("- {}\n", cell(entry))).collect();
    format!("## {}\n\n{lines}\n", hardware::NOT_SHOWN)
}

fn notes(view: &View<'_>) -> String {
    let of_machine = view.machine().map(machine::warnings).unwrap_or_default();
    let all = of_machine.iter().map(String::as_str).chain(view.notes.iter().copied());
    let lines: Vec<String> = all.map(|note| plain_line(note, CELL_BYTES)).collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("## Notes\n\n{}", fenced("text", &lines.join("\n")))
}

fn phases(view: &View<'_>) -> String {
    let mut text = "## Phases\n\n| phase | outcome | time | message |\n| --- | --- | ---: | --- |\n".to_owned();
    for phase in &view.phases {
        let outcome = phase.outcome();
        let message = cell(&outcome.message());
        text += &format!("| {} | {} | {} | {message} |\n", cell(phase.name), outcome.word(), duration(phase.seconds));
    }
    text + "\n"
}

fn slowest(view: &View<'_>) -> String {
    let mut cases: Vec<&Case<'_>> = view.cases.iter().collect();
    // The sort is stable: cases of equal time stay ordered by name.
    cases.sort_by_key(|case| std::cmp::Reverse(millis(case.seconds)));
    let mut text = "## Slowest cases\n\n| case | outcome | time |\n| --- | --- | ---: |\n".to_owned();
    for case in cases.into_iter().take(SLOWEST) {
        text += &format!("| {} | {} | {} |\n", cell(case.name), case.outcome.word(), duration(case.seconds));
    }
    text
}

/// One line for a table cell, escaped so that Markdown and HTML readers see only text.
pub fn cell(raw: &str) -> String {
    let mut text = String::new();
    for c in plain_line(raw, CELL_BYTES).chars() {
        match c {
            '<' => text += "&lt;",
            '>' => text += "&gt;",
            '&' => text += "&amp;",
            // In a table a backslash does not escape a pipe inside of backquotes; the entity always works.
            '|' => text += "&#124;",
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '!' | '~' => {
                text.push('\\');
                text.push(c);
            }
            _ => text.push(c),
        }
    }
    text
}

/// A code block whose fence is longer than any run of backquotes in the text.
pub(crate) fn fenced(language: &str, raw: &str) -> String {
    let text = cut_middle(plain(raw), BLOCK_BYTES);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(3.max(longest + 1));
    format!("{fence}{language}\n{}\n{fence}\n\n", text.trim_end_matches('\n'))
}

/// A link if the text is only an address.
fn link(raw: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-._~:/?#@!$&'*+,;=%".contains(c);
    let text = cut_end(raw, CELL_BYTES);
    if raw.starts_with("https://") && text.chars().all(harmless) { format!("<{text}>") } else { cell(raw) }
}

#[cfg(test)]
mod tests {
    use model::Outcome;

    use super::*;
    use crate::fixture;

    #[test]
    fn summary_matches_golden_file() {
        assert_eq!(markdown(&fixture::run()), include_str!("../tests/summary.md"));
    }

    #[test]
    fn machine_and_warm_start_are_described() {
        let page = markdown(&fixture::run_in_machine());
        for part in [
            "| accelerator | tcg: the guest is of another architecture than the host |\n",
            "| guest | Linux 6.12.107-mix64, 2 processors, 1088 MiB |\n",
            "| start | warm, restored from a memory snapshot: keys and certificates come from the run that created it; ready \
             after 1.25 s |\n",
            "| packages | 2, listed in run.json |\n",
            "## Notes\n\n```text\nrestored from a memory snapshot: keys",
            "\nthe lock is old\n",
            "\nbusybox-static 1.0 all: the locked 0.9 is no longer on the mirror\n",
        ] {
            assert!(page.contains(part), "`{part}` is missing in:\n{page}");
        }
        assert!(!page.contains("linux-image"), "{page}");
    }

    #[test]
    fn hostile_text_stays_text() {
        for text in fixture::hostile_texts() {
            let page = markdown(&fixture::hostile(&text));
            assert!(page.len() <= FILE_BYTES);
            assert!(!page.contains(|c: char| c.is_control() && c != '\n'), "a control character in {page:?}");
            let mut fence = None;
            for line in page.lines() {
                let ticks = line.len() - line.trim_start_matches('`').len();
                match fence {
                    Some(open) if ticks >= open && line.len() == ticks => fence = None,
                    None if ticks >= 3 => fence = Some(ticks),
                    None => outside_of_code(line),
                    Some(_) => {}
                }
            }
            assert_eq!(fence, None, "a code block is left open");
        }
    }

    /// Outside of code blocks, foreign text makes no HTML, image or link, and a table row keeps its columns.
    fn outside_of_code(line: &str) {
        let line = line.replace("\\]", "");
        assert!(
            !line.contains("<a ") && !line.contains("<!--") && !line.contains("](") && !line.contains("<?"),
            "{line}"
        );
        if line.starts_with('|') {
            assert!([3, 4, 5, 9].contains(&line.matches('|').count()), "{line}");
        }
    }

    #[test]
    fn many_failures_are_cut_with_a_count() {
        let mut events = vec![fixture::started()];
        for number in 0..2000 {
            let outcome = Outcome::failed("x".repeat(3000));
            events.push(fixture::case(&format!("watch.n{number:04}"), outcome));
        }
        events.push(fixture::finished(Exit::Conformance));
        let page = markdown(&events);
        assert!(page.len() < FILE_BYTES);
        let shown = page.matches("### watch.n").count();
        assert!(shown > 100 && page.contains(&format!("\n{} more are in `junit.xml`.\n", 2000 - shown)));
        assert!(page.contains("## Slowest cases"), "the end of the page is missing");
    }

    #[test]
    fn only_plain_addresses_become_links() {
        let table = [
            ("https://example.org/a?b=c#d", "<https://example.org/a?b=c#d>"),
            ("https://example.org/> <b>", "https://example.org/&gt; &lt;b&gt;"),
            ("javascript:alert(1)", "javascript:alert(1)"),
            ("apiserver pkg/registry/store_test.go", "apiserver pkg/registry/store\\_test.go"),
        ];
        for (raw, wanted) in table {
            assert_eq!(link(raw), wanted);
        }
    }
}
