//! Sequences about priority levels: the seats that API Priority and Fairness gives to each, from the metrics.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::allocation::{Configuration, Level};
use super::request::{Family, RUN, Request, Sequence, Verb};
use super::schema::LABEL;
use crate::document::Document;

pub(crate) const COLLECTION: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";

/// The metrics of a level that follow from the configuration, with their names in answers. Demand depends on the load.
const METRICS: [(&str, &str); 4] = [
    ("apiserver_flowcontrol_nominal_limit_seats", "nominal"),
    ("apiserver_flowcontrol_lower_limit_seats", "lower"),
    ("apiserver_flowcontrol_upper_limit_seats", "upper"),
    ("apiserver_flowcontrol_current_limit_seats", "current"),
];

/// The limit of this level follows the requests that the server executes at the moment.
const EXEMPT: &str = "exempt";

/// Configurations that are computed to find one that is sensitive to rounding.
const DRAWS: usize = 5000;

/// The flags whose sum is the limit of a server, with the defaults.
const INFLIGHT: [(&str, u32); 2] = [("max-requests-inflight", 400), ("max-mutating-requests-inflight", 200)];

/// Creates levels with ordinary numbers, some at once and then one after the other, and reads the seats of all levels. A
/// new level has metrics only after the server has computed all seats, which a changed one would not show. `given` has the
/// levels that the server has before.
pub(crate) fn sequence(rng: &mut Rng, given: &Configuration) -> Sequence {
    let mut requests = Vec::new();
    let mut all = given.clone();
    let mut count = 0;
    for at_once in [rng.usize(2..5), 1, 1, 1] {
        let added = if rng.u8(..4) > 0 { sensitive(rng, &all, at_once) } else { random(rng, at_once) };
        for level in added {
            requests.push(create(&level, count));
            all.levels.push(level);
            count += 1;
        }
        requests.push(seats(count));
    }
    requests.extend((0..count).map(|number| Request::new(Verb::Delete, format!("{COLLECTION}/{}", name(number)))));
    let resource = "seats of priority levels".to_owned();
    Sequence { family: Family::Seats, resource, requests, ..Sequence::default() }
}

fn random(rng: &mut Rng, count: usize) -> Vec<Level> {
    (0..count).map(|_| level(rng)).collect()
}

/// Random levels with which the seats depend on the last bit of a sum; the last random ones if none do.
fn sensitive(rng: &mut Rng, given: &Configuration, count: usize) -> Vec<Level> {
    let mut all = given.clone();
    for _ in 0..DRAWS {
        all.levels.truncate(given.levels.len());
        all.levels.extend(random(rng, count));
        if all.is_sensitive() {
            break;
        }
    }
    all.levels.split_off(given.levels.len())
}

fn level(rng: &mut Rng) -> Level {
    let borrowing = rng.bool().then(|| rng.u32(..=120));
    Level { shares: rng.u32(1..250), lendable: rng.u32(..=100), borrowing, exempt: false }
}

/// The levels in a list of PriorityLevelConfigurations, with the limit that the flags of the server give.
pub(crate) fn configuration(list: &serde_json::Value, flags: &BTreeMap<String, String>) -> Configuration {
    let levels = list["items"].as_array().into_iter().flatten().map(|item| {
        let spec = &item["spec"];
        let exempt = spec["type"] == "Exempt";
        let numbers = if exempt { &spec["exempt"] } else { &spec["limited"] };
        let number = |name: &str| numbers[name].as_u64().and_then(|number| u32::try_from(number).ok());
        Level {
            shares: number("nominalConcurrencyShares").unwrap_or_default(),
            lendable: number("lendablePercent").unwrap_or_default(),
            borrowing: number("borrowingLimitPercent"),
            exempt,
        }
    });
    let limit = |(flag, default)| flags.get(flag).and_then(|value: &String| value.parse().ok()).unwrap_or(default);
    Configuration { levels: levels.collect(), server: INFLIGHT.into_iter().map(limit).sum() }
}

fn name(number: usize) -> String {
    format!("{LABEL}-{number}")
}

/// The server ignores the parameter: it is how many levels of the sequence the answer must have.
fn seats(count: usize) -> Request {
    let mut request = Request::new(Verb::Seats, "/metrics");
    request.parameter(&format!("levels={count}"));
    request
}

fn create(level: &Level, number: usize) -> Request {
    let mut limited = shares(level);
    let reject = Document::object([("type", Document::text("Reject"))]);
    limited.push(("limitResponse".into(), reject));
    let spec = Document::object([("type", Document::text("Limited")), ("limited", Document::Object(limited))]);
    let labels = Document::object([("differential", Document::text(LABEL))]);
    let metadata = Document::object([("name", Document::text(name(number))), ("labels", labels)]);
    Request::new(Verb::Create, COLLECTION).body(Document::object([
        ("apiVersion", Document::text("flowcontrol.apiserver.k8s.io/v1")),
        ("kind", Document::text("PriorityLevelConfiguration")),
        ("metadata", metadata),
        ("spec", spec),
    ]))
}

fn shares(level: &Level) -> Vec<(String, Document)> {
    let number = |number: u32| Document::Number(number.to_string());
    let mut shares = vec![
        ("nominalConcurrencyShares".to_owned(), number(level.shares)),
        ("lendablePercent".to_owned(), number(level.lendable)),
    ];
    shares.extend(level.borrowing.map(|percent| ("borrowingLimitPercent".to_owned(), number(percent))));
    shares
}

/// The seats of every level in the text of `/metrics`.
pub(crate) fn parse(text: &str) -> Document {
    let mut levels: BTreeMap<&str, Vec<(&str, Document)>> = BTreeMap::new();
    for (metric, short) in METRICS {
        let prefix = format!("{metric}{{priority_level=\"");
        for line in text.lines() {
            let Some((level, value)) = line.strip_prefix(&prefix).and_then(|rest| rest.split_once("\"} ")) else {
                continue;
            };
            if level == EXEMPT {
                continue;
            }
            levels.entry(level).or_default().push((short, Document::Number(value.to_owned())));
        }
    }
    Document::object(levels.into_iter().map(|(level, values)| (level, Document::object(values))))
}

/// Leaves out levels of earlier sequences: the metrics keep them after their deletion.
pub(crate) fn without_deleted(seats: &mut Document, label: &str) {
    let of_a_run = |name: &str| {
        let digits = name.strip_prefix(RUN).and_then(|rest| rest.split_once('-')).map(|(digits, _)| digits);
        digits
            .is_some_and(|digits| digits.len() == label.len() - RUN.len() && digits.bytes().all(|b| b.is_ascii_digit()))
    };
    if let Document::Object(levels) = seats {
        levels.retain(|(name, _)| name.starts_with(label) || !of_a_run(name));
    }
}

/// How many levels have a name that begins with the label and all of their metrics.
pub(crate) fn complete(seats: &Document, label: &str) -> usize {
    let Document::Object(levels) = seats else { return 0 };
    levels.iter().filter(|(name, values)| name.starts_with(label) && values.inner().len() == METRICS.len()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP apiserver_flowcontrol_nominal_limit_seats x\n\
        apiserver_flowcontrol_nominal_limit_seats{priority_level=\"a-0\"} 7\n\
        apiserver_flowcontrol_nominal_limit_seats{priority_level=\"b\"} 1\n\
        apiserver_flowcontrol_lower_limit_seats{priority_level=\"a-0\"} 5\n\
        apiserver_flowcontrol_upper_limit_seats{priority_level=\"a-0\"} 9\n\
        apiserver_flowcontrol_current_limit_seats{priority_level=\"exempt\"} 2\n\
        apiserver_flowcontrol_demand_seats{priority_level=\"a-0\"} 3\n\
        apiserver_flowcontrol_current_limit_seats{priority_level=\"a-0\"} 6\n";

    #[test]
    fn seats_come_from_the_metrics() {
        let seats = parse(TEXT);
        assert_eq!(seats.to_string(), r#"{"a-0":{"nominal":7,"lower":5,"upper":9,"current":6},"b":{"nominal":1}}"#);
        assert_eq!((complete(&seats, "a"), complete(&seats, "b")), (1, 0));
    }

    #[test]
    fn levels_of_other_runs_are_left_out() {
        let mut seats = Document::parse(r#"{"system":1,"d0000001-0":1,"d0000002-0":1,"d-x":1}"#).unwrap();
        without_deleted(&mut seats, "d0000002");
        assert_eq!(seats.to_string(), r#"{"system":1,"d0000002-0":1,"d-x":1}"#);
    }

    #[test]
    fn configuration_has_all_levels_of_the_server() {
        let list = serde_json::json!({"items": [
            {"spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}},
            {"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 30, "lendablePercent": 33}}},
        ]});
        let flags = BTreeMap::from([("max-requests-inflight".to_owned(), "1000".to_owned())]);
        let configuration = configuration(&list, &flags);
        assert_eq!(configuration.server, 1200);
        let expected = Level { shares: 30, lendable: 33, borrowing: None, exempt: false };
        assert_eq!((configuration.levels[0].exempt, &configuration.levels[1]), (true, &expected));
    }

    #[test]
    fn every_created_level_is_deleted() {
        let mut rng = Rng::with_seed(7);
        let sequence = sequence(&mut rng, &Configuration::default());
        let count = |verb| sequence.requests.iter().filter(|request| request.verb == verb).count();
        assert_eq!(count(Verb::Create), count(Verb::Delete));
        assert!(count(Verb::Seats) > 1);
    }
}
