//! The pages of generated and of hostile runs: working links, valid HTML, no foreign resources, readable colours.

use std::collections::{BTreeMap, BTreeSet};

use ::model::{Event, MachineInfo};
use scraper::{Html, Selector};

use super::*;
use crate::differential::tests::{LIBRARY, LIVE};
use crate::fixture;
use crate::picture::Picture;
use crate::support::{Arch, Tiers, support};

fn record(events: Vec<Event>) -> Record {
    let logs = BTreeMap::from([("default.etcd-main.log".to_owned(), b"one\n\x00two\n".to_vec())]);
    let timelines = BTreeMap::from([(
        "watch.ordered.svg".to_owned(),
        Picture::parse(b"<svg xmlns='http://www.w3.org/2000/svg'/>".to_vec()).unwrap(),
    )]);
    Record { events, logs, timelines }
}

fn known() -> Vec<Known> {
    ["watch.a", "watch.never-run"].map(|id| crate::record::known(id, 1)).into()
}

/// Two native runs and one run in a VM.
fn records() -> Vec<Record> {
    let mut later = fixture::run();
    let run = fixture::info_of(&mut later);
    (run.id, run.started) = ("20261122T100000Z-mix64".into(), "2026-11-22T10:00:00.000Z".into());
    vec![record(later), record(fixture::run_in_machine()), record(fixture::run())]
}

fn built(records: &[Record]) -> BTreeMap<String, Vec<u8>> {
    built_after(&[], records)
}

fn built_after(past: &[Entry], records: &[Record]) -> BTreeMap<String, Vec<u8>> {
    let arches =
        [Arch { name: "mix64".into(), title: "Mixed".into() }, Arch { name: "none64".into(), title: "None".into() }];
    site(records, &known(), &support(records, &known(), &arches, &Tiers::default(), &[]), past, &differentials())
}

fn differentials() -> Vec<Differential> {
    [("differential.json", LIBRARY), ("live.json", LIVE)]
        .map(|(file, text)| Differential::parse("run-differential", file, text.as_bytes()).unwrap())
        .into()
}

#[test]
fn page_of_a_differential_run_shows_both_answers_and_the_cause() {
    let files = built(&records());
    check(&files);
    let text = |path: &str| String::from_utf8(files[path].clone()).unwrap();
    let library = text("differences/1.html");
    for part in ["why", "https://example.org/1", "{&quot;n&quot;:0}", "&lt;x&gt;", "✗ ", "2000 per second"] {
        assert!(library.contains(part), "{part}: {library}");
    }
    assert!(text("differences/2.html").contains("PATCH /a?x=y t {}"));
    assert!(text("differences.html").contains("differences/2.html"));
}

fn pages(files: &BTreeMap<String, Vec<u8>>) -> Vec<(&str, Html)> {
    let html = files.iter().filter(|(path, _)| path.ends_with(".html"));
    html.map(|(path, bytes)| (path.as_str(), Html::parse_document(std::str::from_utf8(bytes).unwrap()))).collect()
}

fn all<'a>(page: &'a Html, selector: &str) -> Vec<scraper::ElementRef<'a>> {
    page.select(&Selector::parse(selector).unwrap()).collect()
}

/// Properties of every site.
fn check(files: &BTreeMap<String, Vec<u8>>) {
    let pages = pages(files);
    let anchors: BTreeMap<&str, BTreeSet<&str>> = pages
        .iter()
        .map(|(path, page)| (*path, all(page, "[id]").iter().filter_map(|e| e.attr("id")).collect()))
        .collect();
    for (path, page) in &pages {
        assert!(page.errors.is_empty(), "{path}: {:?}", page.errors);
        let ids: Vec<&str> = all(page, "[id]").iter().filter_map(|element| element.attr("id")).collect();
        assert_eq!(ids.len(), anchors[path].len(), "{path} has a duplicate id");
        structure(path, page);
        for element in
            all(page, "[src], [href], [srcset], [action], [data], [style], form, iframe, object, embed, base")
        {
            reference(path, element, files, &anchors);
        }
    }
}

fn structure(path: &str, page: &Html) {
    assert_eq!(all(page, "h1").len(), 1, "{path}");
    assert_eq!(all(page, "main").len(), 1, "{path}");
    let policies = all(page, "head > meta[http-equiv=Content-Security-Policy]");
    assert_eq!(policies.first().and_then(|meta| meta.attr("content")), Some(page::POLICY), "{path}");
    assert!(
        all(page, "script").iter().all(|script| script.attr("src").is_some() && script.inner_html().is_empty()),
        "{path}"
    );
    assert!(all(page, "th").iter().all(|th| th.attr("scope").is_some()), "{path}: a heading without a scope");
    assert!(
        all(page, "table").iter().all(|table| !table
            .select(&Selector::parse("thead th[scope=col]").unwrap())
            .collect::<Vec<_>>()
            .is_empty()),
        "{path}"
    );
    assert!(all(page, "img").iter().all(|img| img.attr("alt").is_some_and(|alt| !alt.is_empty())), "{path}");
    assert!(
        all(page, ".o").iter().all(|mark| mark.text().any(|text| text.chars().any(char::is_alphabetic))),
        "{path}: an outcome without a word"
    );
    for html in all(page, "*") {
        assert!(!html.value().attrs().any(|(name, _)| name.starts_with("on")), "{path}: an event handler");
    }
}

fn reference(
    path: &str,
    element: scraper::ElementRef<'_>,
    files: &BTreeMap<String, Vec<u8>>,
    anchors: &BTreeMap<&str, BTreeSet<&str>>,
) {
    let name = element.value().name();
    assert!(matches!(name, "a" | "link" | "script" | "img"), "{path}: <{name}>");
    assert_eq!(element.attr("style"), None, "{path}: the content security policy forbids style attributes");
    let Some(to) = element.attr("href").or(element.attr("src")) else { return };
    if name == "a" && to.starts_with("https://") {
        // A reader may follow the link; the page itself never loads it.
        assert_eq!(element.attr("rel"), Some("noreferrer"), "{path}: {to}");
        return;
    }
    let (file, anchor) = to.split_once('#').map_or((to, None), |(file, anchor)| (file, Some(anchor)));
    let target = if file.is_empty() { path.to_owned() } else { resolved(path, file) };
    assert!(files.contains_key(&target), "{path}: {to} has no target ({target})");
    if let Some(anchor) = anchor {
        assert!(anchors[target.as_str()].contains(anchor), "{path}: {to} has no anchor");
    }
}

fn resolved(from: &str, to: &str) -> String {
    assert!(!to.contains(':') && !to.starts_with('/'), "{from}: {to} is not relative");
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        if part == ".." { assert!(parts.pop().is_some(), "{from}: {to} leaves the site") } else { parts.push(part) }
    }
    parts.join("/")
}

#[test]
fn pages_are_valid_and_links_have_targets() {
    let files = built(&records());
    check(&files);
    for path in [
        "index.html",
        "runs.html",
        "support.html",
        "style.css",
        "checks/watch.ordered.html",
        "runs/20261121T100000Z-mix64.html",
    ] {
        assert!(files.contains_key(path), "{path} is missing in {:?}", files.keys());
    }
}

#[test]
fn equal_records_give_equal_bytes_in_any_order() {
    let mut records = records();
    let files = built(&records);
    records.swap(0, 2);
    // Two of the records have the same start and id, and keep their order.
    assert!(built(&records) == files);
    assert!(files.values().all(|bytes| !bytes.is_empty()));
}

#[test]
fn hostile_text_stays_text() {
    for text in fixture::hostile_texts() {
        // Longer than any limit of a page. A megabyte in every field would only take more time.
        let text: String = text.chars().take(20_000).collect();
        let mut records = vec![record(fixture::hostile(&text)), record(fixture::run())];
        records[0].logs.insert(text.replace('/', "").chars().take(100).collect(), text.clone().into_bytes());
        let files = built(&records);
        check(&files);
        for (path, bytes) in files.iter().filter(|(path, _)| !path.ends_with(".json")) {
            let shown = String::from_utf8_lossy(bytes);
            assert!(!path.contains("..") && !path.starts_with('/') && path.is_ascii(), "{path}");
            assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "a control character in {path}");
            assert!(!shown.contains('\u{202e}'), "a bidirectional override in {path}");
        }
    }
}

#[test]
fn incomplete_records_have_valid_pages() {
    let mut cut = fixture::run();
    cut.truncate(12);
    for events in [Vec::new(), vec![fixture::started()], cut, fixture::run()[1..].to_vec()] {
        check(&built(&[record(events.clone()), record(events)]));
    }
    check(&built(&[]));
}

#[test]
fn grid_shows_newest_result_and_history() {
    let mut records = records();
    for event in &mut records[0].events {
        if let Event::CaseFinished { case, outcome, .. } = event
            && case == "watch.ordered"
        {
            *outcome = ::model::Outcome::Passed;
        }
    }
    let files = built(&records);
    let index = String::from_utf8(files["index.html"].clone()).unwrap();
    let page = Html::parse_document(&index);
    let row = all(&page, "table.grid tr.row")
        .into_iter()
        .find(|row| row.text().collect::<String>().starts_with("watch.ordered"));
    let cells: Vec<String> =
        row.unwrap().select(&Selector::parse("td.c").unwrap()).map(|cell| cell.text().collect::<String>()).collect();
    assert!(cells[0].contains("passed") && cells[1].contains("failed"), "{cells:?}");
    assert!(index.contains("Last 2 runs, oldest first: failed, passed"), "no history");
    let run = String::from_utf8(files["runs/20261121T100000Z-mix64.html"].clone()).unwrap();
    assert!(run.contains("timelines/watch.ordered.svg") && run.contains("logs/default.etcd-main.txt"), "{run}");
    let check = String::from_utf8(files["checks/watch.a.html"].clone()).unwrap();
    assert!(check.contains("By looking.") && check.contains("kubectl get"), "{check}");
}

#[test]
fn newest_run_that_broke_before_its_cases_is_reported() {
    use ::model::{Exit, Outcome};
    let is_kept = |event: &Event| match event {
        Event::CaseStarted { case, .. } => case == "watch.a",
        Event::CaseFinished { outcome, .. } => *outcome == Outcome::Passed,
        Event::SuitePlanned { .. } | Event::RunFinished { .. } => false,
        _ => true,
    };
    let mut green: Vec<Event> = fixture::run().into_iter().filter(is_kept).collect();
    green.extend([fixture::planned(1), fixture::finished(Exit::Ok)]);
    let boot = fixture::phase("boot", Outcome::errored("boot", "etcd ended"));
    let mut broken = vec![fixture::started(), boot, fixture::finished(Exit::Infrastructure)];
    let run = fixture::info_of(&mut broken);
    (run.id, run.started) = ("20261122T100000Z-mix64".into(), "2026-11-22T10:00:00.000Z".into());
    let page = |records: &[Record]| String::from_utf8(built(records)["index.html"].clone()).unwrap();
    assert!(page(&[record(green.clone())]).contains("All newest results are as expected."));
    let page = page(&[record(green), record(broken)]);
    assert!(page.contains("but not the newest run in 1 of 1 environments."), "{page}");
}

/// Shard 2 of 2 began later and is green.
#[test]
fn shard_that_broke_before_its_cases_is_not_hidden_by_another_one() {
    use ::model::{Exit, Outcome};
    let shard = |index: u32, mut events: Vec<Event>| {
        let run = fixture::info_of(&mut events);
        (run.id, run.started) = (format!("shard-{index}"), format!("2026-11-21T10:00:0{index}.000Z"));
        run.shard = Some(format!("{index}/2"));
        record(events)
    };
    let whole = || vec![fixture::run()[5].clone(), fixture::planned(1), fixture::case("watch.a", Outcome::Passed)];
    let green = || [vec![fixture::started()], whole(), vec![fixture::finished(Exit::Ok)]].concat();
    let boot = fixture::phase("boot", Outcome::errored("boot", "etcd ended"));
    let broken = vec![fixture::started(), boot, fixture::finished(Exit::Infrastructure)];
    let page = |records: &[Record]| {
        let files = built(records);
        check(&files);
        String::from_utf8(files["index.html"].clone()).unwrap()
    };
    assert!(page(&[shard(1, green()), shard(2, green())]).contains("All newest results are as expected.</p>"));
    let shown = page(&[shard(1, broken), shard(2, green())]);
    assert!(shown.contains("in 1 of 1 environments.") && shown.contains("infrastructure failed"), "{shown}");
    let shown = page(&[shard(2, green())]);
    assert!(shown.contains("in 1 of 1 environments.") && shown.contains("no result of shard 1/2"), "{shown}");
    assert!(page(&[]).contains("The records contain no run."));
}

#[test]
fn run_page_describes_the_machine() {
    let MachineInfo { kernel, .. } = fixture::machine();
    let files = built(&records());
    let found =
        files.iter().any(|(path, bytes)| path.starts_with("runs/") && String::from_utf8_lossy(bytes).contains(&kernel));
    assert!(found);
}

#[test]
fn run_page_shows_what_the_run_could_not_show() {
    let files = built(&records());
    let mut pages = files.iter().filter(|(path, _)| path.starts_with("runs/"));
    let found = pages.any(|(_, bytes)| {
        let page = Html::parse_document(&String::from_utf8_lossy(bytes));
        let headings = all(&page, "h2").into_iter().map(|heading| heading.text().collect::<String>());
        let entries = all(&page, "li").into_iter().map(|entry| entry.text().collect::<String>());
        headings.into_iter().any(|text| text == "What this run could not show")
            && entries.into_iter().any(|text| text.starts_with("Silicon: QEMU 11.1.3 executed all instructions"))
    });
    assert!(found);
}

// Colours.

/// Relative luminance of `#rrggbb`: <https://www.w3.org/TR/WCAG21/#dfn-relative-luminance>
fn luminance(colour: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
}

fn contrast(one: &str, other: &str) -> f64 {
    let (a, b) = (luminance(one), luminance(other));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// The custom properties of the light and the dark block.
fn schemes() -> [BTreeMap<&'static str, &'static str>; 2] {
    let blocks: Vec<&str> = STYLE.split(":root {").skip(1).map(|rest| rest.split('}').next().unwrap()).collect();
    let colours = |block: &'static str| {
        let lines =
            block.lines().filter_map(|line| line.trim().strip_prefix("--")?.strip_suffix(';')?.split_once(": "));
        lines.filter(|(_, value)| value.starts_with('#')).collect::<BTreeMap<_, _>>()
    };
    [colours(blocks[0]), colours(blocks[1])]
}

#[test]
fn text_is_readable_in_light_and_dark() {
    let [light, dark] = schemes();
    assert_eq!(light.keys().collect::<Vec<_>>(), dark.keys().collect::<Vec<_>>());
    for colours in [light, dark] {
        let surfaces = ["page", "soft", "row"];
        let texts = ["text", "dim", "link", "good"];
        let on_surfaces = texts.iter().flat_map(|text| surfaces.map(|surface| (*text, surface)));
        let filled = [("bad", "bad-page"), ("warn", "warn-page"), ("known", "known-page")];
        for (text, surface) in on_surfaces.chain(filled) {
            let found = contrast(colours[text], colours[surface]);
            assert!(found >= 4.5, "{text} on {surface}: {found:.2}");
        }
        for bar in ["bar-good", "bar-bad", "bar-warn", "bar-skip", "known"] {
            let found =
                surfaces.map(|surface| contrast(colours[bar], colours[surface])).into_iter().fold(f64::MAX, f64::min);
            assert!(found >= 3.0, "{bar}: {found:.2}");
        }
    }
    // The rest of the style sheet has no colours: the tests above would not see them.
    let rest: String =
        STYLE.split(":root {").map(|part| part.split_once('}').map_or(part, |(_, rest)| rest)).skip(1).collect();
    assert!(
        !rest.contains('#') || rest.match_indices('#').all(|(at, _)| rest[at..].starts_with("#only")),
        "a colour outside of the two colour blocks"
    );
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
}

#[test]
fn history_entries_appear_as_verdicts_of_their_lane() {
    let results = report::Results::of(&[report::Child::of(fixture::run())]);
    let line = |run: &str, ts: &str, verdict: &str| Entry {
        run: run.into(),
        ts: ts.into(),
        verdict: verdict.into(),
        ..Entry::of(&results.runs[0], None)
    };
    let old = [line("a", "2026-10-01T10:00:00Z", "ok"), line("b", "2026-10-02T10:00:00Z", "infrastructure")];
    let shown = |past: &[Entry]| {
        let files = built_after(past, &records());
        check(&files);
        let page = Html::parse_document(std::str::from_utf8(&files["index.html"]).unwrap());
        let strips = all(&page, "table.lanes .strip");
        strips.iter().filter_map(|strip| strip.attr("title").map(str::to_owned)).collect::<Vec<String>>()
    };
    let before = shown(&[]);
    let after = shown(&old);
    let wanted = "Last 4 runs, oldest first: 2026-10-01 10:00 all as expected, 2026-10-02 10:00 infrastructure failed, 2026-11-21";
    assert!(after.len() == before.len() && after.iter().any(|title| title.starts_with(wanted)), "{after:?}");
    // A run that did not boot belongs to the newest lane.
    let broken = line("d", "2026-10-04T10:00:00Z", "infrastructure");
    let titles = shown(&[Entry { mode: None, versions: BTreeMap::new(), ..broken }]);
    assert_eq!(titles.iter().filter(|title| title.contains("2026-10-04 10:00 infrastructure failed")).count(), 1);
    // An architecture without a record is named.
    let gone = Entry { arch: "gone64".into(), ..line("e", "2026-10-05T10:00:00Z", "ok") };
    let index = String::from_utf8(built_after(&[gone], &records())["index.html"].clone()).unwrap();
    assert!(index.contains("have results of: gone64."), "{index}");
    // Entries of another lane, and an entry of a run with a record, do not appear.
    let elsewhere = |change: fn(&mut Entry)| {
        let mut entry = line("c", "2026-10-03T10:00:00Z", "ok");
        change(&mut entry);
        shown(&[entry])
    };
    assert_eq!(elsewhere(|entry| entry.arch = "none64".into()), before);
    assert_eq!(elsewhere(|entry| entry.provider = "qemu".into()), before);
    assert_eq!(elsewhere(|entry| entry.mode = Some("qemu-user".into())), before);
    assert_eq!(elsewhere(|entry| drop(entry.versions.remove("etcd"))), before);
    assert_eq!(elsewhere(|entry| entry.run = "20261121T100000Z-mix64".into()), before);
}
