//! What all pages share: the frame, outcomes, history strips, and text from outside made fit for HTML.

use ::model::{Exit, Outcome};
use maud::{DOCTYPE, Markup, html};

use super::model::{Lane, Run, Runs};
use crate::text::{self, cut_end, cut_middle, duration, plain_line, title};

/// Longest text in a table.
const LINE_BYTES: usize = 400;
/// Longest text in a block.
const BLOCK_BYTES: usize = 16 << 10;
/// Runs of a history strip.
const STRIP: usize = 24;

/// The pages show text of foreign runs: only the two files of the site may style them or run, and nothing is loaded
/// from elsewhere.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
    base-uri 'none'; form-action 'none'";

/// One page; `base` leads from it to the top folder.
pub(super) struct Page<'a> {
    pub(super) base: &'a str,
    pub(super) title: &'a str,
    /// The entry of the menu that it belongs to.
    pub(super) here: &'a str,
    pub(super) body: Markup,
}

impl Page<'_> {
    pub(super) fn html(self) -> String {
        let menu = [("Grid", "index.html"), ("Runs", "runs.html"), ("Support", "support.html")];
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta name="referrer" content="no-referrer";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    title { (line(self.title)) " – Archproof" }
                    link rel="stylesheet" href=(format!("{}style.css", self.base));
                    script defer src=(format!("{}filter.js", self.base)) {}
                }
                body {
                    a.skip href="#main" { "To the content" }
                    header.top {
                        nav aria-label="Site" {
                            strong { "Archproof" }
                            @for (name, file) in menu {
                                @let here = (name == self.here).then_some("page");
                                a href=(format!("{}{file}", self.base)) aria-current=[here] { (name) }
                            }
                        }
                    }
                    main #main tabindex="-1" { (self.body) }
                    footer {
                        p {
                            "Made by Archproof from the records of runs. Times are UTC. What was run under an emulator "
                            "speaks of the instruction set as that emulator implements it, not of silicon."
                        }
                    }
                }
            }
        };
        page.into_string()
    }
}

/// Text without what HTML forbids or what makes a line look like another one.
pub(super) fn text(raw: &str) -> String {
    let odd = |c: char| matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe;
    text::plain(raw).replace(odd, "\u{fffd}")
}

/// [`text`] on one line.
pub(super) fn line(raw: &str) -> String {
    text(&plain_line(raw, LINE_BYTES))
}

/// A block of lines as they are.
pub(super) fn block(raw: &str) -> Markup {
    // A parser drops the first newline of a `pre`.
    html! { pre tabindex="0" { "\n" (cut_middle(text(raw), BLOCK_BYTES)) } }
}

/// An identifier that may be broken after its dots and dashes.
pub(super) fn id(raw: &str) -> Markup {
    let whole = line(raw);
    html! {
        @for part in whole.split_inclusive(['.', '-', '/', '_']) { (part) wbr; }
    }
}

/// A link when the text is nothing but an address.
pub(super) fn source(raw: &str) -> Markup {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-._~:/?#@!$&'*+,;=%".contains(c);
    let short = cut_end(raw, LINE_BYTES);
    let is_link =
        raw.strip_prefix("https://").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphanumeric()));
    html! {
        @if is_link && short == raw && raw.chars().all(harmless) {
            a href=(raw) rel="noreferrer" { (raw) }
        } @else { (line(raw)) }
    }
}

/// `2026-11-21 10:00` of a time stamp.
pub(super) fn when(raw: &str) -> String {
    match raw.parse::<jiff::Timestamp>() {
        Ok(at) => at.strftime("%Y-%m-%d %H:%M").to_string(),
        Err(_) => line(raw),
    }
}

/// The letter that the style sheet knows an outcome by.
pub(super) fn class(word: &str) -> &'static str {
    match word {
        "passed" => "p",
        "failed" => "f",
        "unexpected pass" => "u",
        "errored" => "e",
        "timed out" => "t",
        "expected failure" => "x",
        _ => "s",
    }
}

/// The outcome as a word with its sign.
pub(super) fn outcome(outcome: &Outcome) -> Markup {
    let class = class(outcome.word());
    let sign = match class {
        "p" => "✓",
        "f" => "✗",
        "u" => "!",
        "e" | "t" => "▲",
        "x" => "≈",
        _ => "–",
    };
    html! { span class=(format!("o {class}")) { span aria-hidden="true" { (sign) " " } (outcome.word()) } }
}

/// A run's verdict.
pub(super) fn verdict(exit: Exit) -> Markup {
    let class = verdict_class(exit);
    let sign = if exit == Exit::Ok { "✓" } else { "✗" };
    html! { span class=(format!("o {class}")) { span aria-hidden="true" { (sign) " " } (exit.to_string()) } }
}

fn verdict_class(exit: Exit) -> &'static str {
    match exit {
        Exit::Ok => "p",
        Exit::Conformance => "f",
        Exit::NothingRan => "s",
        _ => "e",
    }
}

/// Results in the order of time, a bar each: the worse, the taller. Nothing for a single one.
pub(super) fn strip(runs: &Runs<'_>, results: &[(usize, usize)]) -> Markup {
    let shown = &results[results.len().saturating_sub(STRIP)..];
    let words: Vec<&str> = shown.iter().map(|at| runs.result(*at).1.outcome.word()).collect();
    let told = format!("Last {} runs, oldest first: {}", words.len(), words.join(", "));
    html! {
        @if words.len() > 1 {
            span.strip role="img" aria-label=(told) title=(told) {
                @for word in &words { i class=(class(word)) {} }
            }
        }
    }
}

/// How the runs of a lane ended, likewise.
pub(super) fn ends(ends: &[(&str, Exit)]) -> Markup {
    let shown = &ends[ends.len().saturating_sub(STRIP)..];
    let words: Vec<String> = shown.iter().map(|(at, exit)| format!("{} {exit}", when(at))).collect();
    let told = format!("Last {} runs, oldest first: {}", words.len(), words.join(", "));
    html! {
        @if words.len() > 1 {
            span.strip role="img" aria-label=(told) title=(told) {
                @for (_, exit) in shown { i class=(verdict_class(*exit)) {} }
            }
        }
    }
}

/// Several counts, the zeros left out.
pub(super) fn counts(counts: crate::view::Counts) -> Markup {
    let some: Vec<(&str, usize)> = counts.iter().filter(|(_, number)| *number > 0).collect();
    html! {
        @if some.is_empty() { span.dim { "no cases" } }
        @for (word, number) in some {
            span class=(format!("o {}", class(word))) { (number) " " (word) } " "
        }
    }
}

/// Where a result is from.
pub(super) fn place(lane: &Lane) -> Markup {
    html! { (line(&lane.arch)) " " span.dim { (line(&lane.how())) ", " (line(&lane.what())) } }
}

/// A link to a run's page.
pub(super) fn run_link(base: &str, run: &Run<'_>) -> Markup {
    html! { a href=(format!("{base}runs/{}.html", run.slug)) { (id(run.id())) } }
}

pub(super) fn check_link(base: &str, runs: &Runs<'_>, check: &str, words: &str) -> Markup {
    html! { a href=(format!("{base}checks/{}.html", runs.check(check).slug)) { (id(words)) } }
}

pub(super) fn seconds(seconds: f64) -> String {
    duration(seconds)
}

pub(super) fn capital(words: &str) -> String {
    title(words)
}
