//! A picture that compares watch streams with the history of the store: a column for each revision, a row for the store
//! and for each stream. SVG, readable in a browser, in light and dark mode, without a script.
//!
//! The picture makes no decision: it shows a hole where a stream did not deliver a revision that it should have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use model::history::{Change, Frame, FrameKind, History, Revision, Stream};
use report::text::plain;

/// Columns of one picture, and how many of them are before the first hole.
const COLUMNS: usize = 48;
const BEFORE: usize = 12;
/// Streams of one picture.
const STREAMS: usize = 24;

const WIDTH: usize = 22;
const HEIGHT: usize = 26;
const LABELS: usize = 330;
const TOP: usize = 74;

const STYLE: &str = "text{font:11px ui-monospace,monospace;fill:#1f2328}.s{fill:#6e7781}.h{font-size:14px}\
    rect{rx:3px}.ADDED,.create{fill:#2da44e}.MODIFIED,.change{fill:#218bff}.DELETED,.delete{fill:#cf222e}\
    .BOOKMARK{fill:#bf8700}.ERROR{fill:#8250df}.hole{fill:none;stroke:#cf222e;stroke-dasharray:3 2}svg{background:#fff}\
    .c{fill:#fff}@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}.s{fill:#8b949e}.c{fill:#fff}}";

/// The streams of `client` and its workers, with the revisions below their prefixes. None without streams or revisions.
pub(crate) fn timeline(history: &History, client: &str) -> Option<String> {
    let worker = format!("{client}/");
    let of_client = |stream: &&Stream| *stream.client == *client || stream.client.starts_with(&worker);
    let streams: Vec<&Stream> = history.streams.iter().filter(of_client).collect();
    let prefixes: BTreeSet<&str> = streams.iter().map(|stream| &*stream.prefix).collect();
    let about = |revision: &&Revision| prefixes.iter().any(|prefix| revision.key.starts_with(prefix));
    let revisions: Vec<&Revision> = history.revisions.iter().filter(about).collect();
    if streams.is_empty() || revisions.is_empty() {
        return None;
    }
    let rows: Vec<Row<'_>> = streams.iter().map(|stream| Row::new(stream, &revisions)).collect();
    let first_hole = rows.iter().filter_map(|row| row.holes.first().copied()).min();
    let begin = match first_hole {
        Some(column) => column.saturating_sub(BEFORE),
        None => revisions.len().saturating_sub(COLUMNS),
    };
    let end = revisions.len().min(begin + COLUMNS);
    let in_sight = |row: &&Row<'_>| row.error.is_some() || row.frames.range(begin..end).next().is_some();
    let mut shown: Vec<&Row<'_>> = rows.iter().filter(in_sight).collect();
    // Streams with holes and errors first; the others are for comparison.
    shown.sort_by_key(|row| (row.holes.is_empty(), row.error.is_none(), row.stream.id));
    shown.truncate(STREAMS);
    Some(picture(history, client, &revisions[begin..end], begin, &shown, rows.len()))
}

/// One stream over all columns.
struct Row<'a> {
    stream: &'a Stream,
    /// Columns between the first and the last delivered one that were not delivered. Empty for a stream with a
    /// selector, because a selector legitimately leaves out revisions.
    holes: Vec<usize>,
    frames: BTreeMap<usize, &'a Frame>,
    /// The last ERROR. It belongs to no revision.
    error: Option<&'a Frame>,
}

impl<'a> Row<'a> {
    fn new(stream: &'a Stream, revisions: &[&Revision]) -> Row<'a> {
        let column = |rv: u64| revisions.binary_search_by_key(&rv, |revision| revision.rev.cast_unsigned()).ok();
        let changes = stream.frames.iter().filter(|frame| frame.is_change());
        let frames: BTreeMap<usize, &Frame> = changes.filter_map(|frame| Some((column(frame.rv)?, frame))).collect();
        let live = stream.frames.iter().filter(|frame| frame.is_change() && frame.kind != FrameKind::Added);
        let first = live.filter_map(|frame| column(frame.rv)).min();
        let holes = match (first, frames.keys().next_back(), &stream.selector) {
            (Some(first), Some(&last), None) => {
                let expected = (first..last).filter(|n| revisions[*n].key.starts_with(&*stream.prefix));
                expected.filter(|n| !frames.contains_key(n)).collect()
            }
            _ => Vec::new(),
        };
        let error = stream.frames.iter().rfind(|frame| matches!(frame.kind, FrameKind::Error { .. }));
        Row { stream, holes, frames, error }
    }

    fn label(&self) -> String {
        let Stream { id, transport, query, .. } = self.stream;
        let short: String = query.chars().take(34).collect();
        format!("#{id} {transport} {short}")
    }
}

fn picture(
    history: &History,
    client: &str,
    columns: &[&Revision],
    begin: usize,
    rows: &[&Row<'_>],
    all: usize,
) -> String {
    // The column after the last one is for errors.
    let (width, height) = (LABELS + (columns.len() + 1) * WIDTH + 20, TOP + (rows.len() + 1) * HEIGHT + 16);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\"><title>{title}</title><style>{STYLE}</style>\n<text class=\"h\" x=\"12\" y=\"22\">{title}</text>\n\
         <text class=\"s\" x=\"12\" y=\"40\">{of}</text>\n",
        title = xml(&format!("{client} on {}/{}", history.meta.profile, history.meta.store)),
        of = xml(&format!(
            "{} revisions from {}, {} of {all} streams; a dashed box marks a change that a stream did not deliver",
            columns.len(),
            columns.first().map_or(0, |revision| revision.rev),
            rows.len(),
        )),
    );
    for (n, revision) in columns.iter().enumerate().filter(|(n, _)| n % 4 == 0) {
        text(&mut svg, "s", LABELS + n * WIDTH, TOP - 8, &revision.rev.to_string());
    }
    text(&mut svg, "", 12, TOP + 17, "store");
    for (n, revision) in columns.iter().enumerate() {
        let class = match revision.kind {
            Change::Delete => "delete",
            Change::Put if revision.create_rev == revision.rev => "create",
            Change::Put => "change",
        };
        let told = format!("{class} {}@{} known at {}", revision.key, revision.rev, seconds(revision.at));
        cell(&mut svg, class, n, 0, &told, name(&revision.key));
    }
    for (number, row) in rows.iter().enumerate() {
        text(&mut svg, "", 12, TOP + (number + 1) * HEIGHT + 17, &row.label());
        for (n, revision) in columns.iter().enumerate() {
            let column = begin + n;
            if let Some(frame) = row.frames.get(&column) {
                let told = format!("{} {}@{} at {}", frame.kind.word(), frame.key, frame.rv, seconds(frame.at));
                cell(&mut svg, frame.kind.word(), n, number + 1, &told, &frame.kind.word()[..1]);
            } else if row.holes.contains(&column) {
                cell(&mut svg, "hole", n, number + 1, &format!("{}@{} is missing", revision.key, revision.rev), "");
            }
        }
        if let Some((frame, FrameKind::Error { code, message, .. })) = row.error.map(|frame| (frame, &frame.kind)) {
            let after = row.frames.range(begin..begin + columns.len()).next_back().map_or(0, |(n, _)| n + 1 - begin);
            let told = format!("ERROR {code} {message} at {}", seconds(frame.at));
            cell(&mut svg, "ERROR", after.min(columns.len()), number + 1, &told, "!");
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn cell(svg: &mut String, class: &str, column: usize, row: usize, told: &str, short: &str) {
    let (x, y) = (LABELS + column * WIDTH, TOP + row * HEIGHT);
    let short: String = short.chars().take(3).collect();
    let _ = writeln!(
        svg,
        "<g><title>{}</title><rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\"/>\
         <text class=\"c\" x=\"{}\" y=\"{}\">{}</text></g>",
        xml(told),
        WIDTH - 2,
        HEIGHT - 4,
        x + 3,
        y + 15,
        xml(&short)
    );
}

fn text(svg: &mut String, class: &str, x: usize, y: usize, words: &str) {
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", xml(words));
}

fn xml(raw: &str) -> String {
    plain(raw).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn seconds(micros: u64) -> String {
    format!("{}.{:03} s", micros / 1_000_000, micros / 1_000 % 1_000)
}

/// `c0` of `/registry/configmaps/ns/c0`.
fn name(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::history::{End, Start};

    use super::*;

    fn revision(rev: i64, kind: Change, create_rev: i64) -> Revision {
        let (key, value) = (Arc::from("/registry/configmaps/ns/<c0>"), Arc::from([]));
        Revision { at: 1_500_000, rev, key, kind, version: 1, create_rev, lease: 0, prev_rev: 0, value }
    }

    fn stream(id: u64, rvs: &[u64]) -> Stream {
        let frame = |rv: &u64| Frame {
            at: 2_000_000,
            kind: if *rv == 7 { FrameKind::Added } else { FrameKind::Modified },
            key: Arc::from("/registry/configmaps/ns/<c0>"),
            rv: *rv,
            uid: Arc::from("u"),
        };
        Stream {
            id,
            client: Arc::from("watch.reliable"),
            transport: "http/2".into(),
            prefix: Arc::from("/registry/configmaps/ns/"),
            selector: None,
            start: Start::After(6),
            query: "watch=true&resourceVersion=6".into(),
            resumes: None,
            opened: 0,
            frames: rvs.iter().map(frame).collect(),
            closed: 3_000_000,
            end: End::Client,
        }
    }

    #[test]
    fn missing_change_is_a_dashed_box() {
        let revisions = (7..=12).map(|rev| revision(rev, Change::Put, 7)).collect();
        let streams = vec![stream(1, &[7, 8, 9, 10, 11, 12]), stream(2, &[7, 8, 10, 11])];
        let history = History { revisions, streams, ..History::default() };
        let svg = timeline(&history, "watch.reliable").unwrap();
        assert_eq!(svg.matches("class=\"hole\"").count(), 1, "{svg}");
        assert!(svg.contains("/registry/configmaps/ns/&lt;c0&gt;@9 is missing"), "{svg}");
        // The stream with the hole is first.
        assert!(svg.find("#2 http/2").unwrap() < svg.find("#1 http/2").unwrap());
        assert!(crate::picture::Picture::parse(svg.into_bytes()).is_ok());
        assert_eq!(timeline(&history, "watch.other"), None);
    }

    #[test]
    fn stream_of_only_an_error_is_in_the_picture() {
        let mut failed = stream(2, &[8]);
        let message = "Too large resource version".to_owned();
        failed.frames[0].kind = FrameKind::Error { code: 504, reason: "Timeout".into(), message };
        let revisions = (7..=9).map(|rev| revision(rev, Change::Put, 7)).collect();
        let history = History { revisions, streams: vec![stream(1, &[7, 8, 9]), failed], ..History::default() };
        let svg = timeline(&history, "watch.reliable").unwrap();
        assert!(svg.contains("2 of 2 streams") && svg.contains("ERROR 504 Too large resource version at 2"), "{svg}");
        assert!(svg.find("#2 http/2").unwrap() < svg.find("#1 http/2").unwrap());
        assert!(crate::picture::Picture::parse(svg.into_bytes()).is_ok());
    }

    #[test]
    fn long_history_is_shown_around_the_first_hole() {
        let revisions = (1..=500).map(|rev| revision(rev, Change::Put, 1)).collect();
        let rvs: Vec<u64> = (2..=500).filter(|rv| *rv != 300).collect();
        let history = History { revisions, streams: vec![stream(1, &rvs)], ..History::default() };
        let svg = timeline(&history, "watch.reliable").unwrap();
        assert!(svg.contains("@300 is missing") && !svg.contains("@100 "), "{svg}");
        assert!(crate::picture::Picture::parse(svg.into_bytes()).is_ok());
    }
}
