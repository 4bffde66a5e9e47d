//! Sequences about priority levels: the seats that API Priority and Fairness gives to each, from the metrics.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::request::{Family, Request, Sequence, Verb};
use super::schema::LABEL;
use crate::document::Document;

const COLLECTION: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";

/// The metrics of a level that follow from the configuration, with their names in answers. Demand depends on the load.
const METRICS: [(&str, &str); 4] = [
    ("apiserver_flowcontrol_nominal_limit_seats", "nominal"),
    ("apiserver_flowcontrol_lower_limit_seats", "lower"),
    ("apiserver_flowcontrol_upper_limit_seats", "upper"),
    ("apiserver_flowcontrol_current_limit_seats", "current"),
];

/// Creates some levels with ordinary numbers, reads the seats of all levels, changes a level, and reads them again.
pub(crate) fn sequence(rng: &mut Rng) -> Sequence {
    let count = rng.usize(2..6);
    let mut requests: Vec<Request> = (0..count).map(|number| create(rng, number)).collect();
    requests.push(seats(count));
    for _ in 0..rng.u8(1..4) {
        let object = format!("{COLLECTION}/{}", name(rng.usize(..count)));
        let limited = Document::object([("limited", Document::Object(shares(rng)))]);
        requests.push(Request::new(Verb::MergePatch, object).body(Document::object([("spec", limited)])));
        requests.push(seats(count));
    }
    requests.extend((0..count).map(|number| Request::new(Verb::Delete, format!("{COLLECTION}/{}", name(number)))));
    let resource = "seats of priority levels".to_owned();
    Sequence { family: Family::Seats, resource, requests, ..Sequence::default() }
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

fn create(rng: &mut Rng, number: usize) -> Request {
    let mut limited = shares(rng);
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

fn shares(rng: &mut Rng) -> Vec<(String, Document)> {
    let number = |number: u32| Document::Number(number.to_string());
    let mut shares = vec![
        ("nominalConcurrencyShares".to_owned(), number(rng.u32(1..250))),
        ("lendablePercent".to_owned(), number(rng.u32(..=100))),
    ];
    if rng.bool() {
        shares.push(("borrowingLimitPercent".to_owned(), number(rng.u32(..=120))));
    }
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
            levels.entry(level).or_default().push((short, Document::Number(value.to_owned())));
        }
    }
    Document::object(levels.into_iter().map(|(level, values)| (level, Document::object(values))))
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
        apiserver_flowcontrol_demand_seats{priority_level=\"a-0\"} 3\n\
        apiserver_flowcontrol_current_limit_seats{priority_level=\"a-0\"} 6\n";

    #[test]
    fn seats_come_from_the_metrics() {
        let seats = parse(TEXT);
        assert_eq!(seats.to_string(), r#"{"a-0":{"nominal":7,"lower":5,"upper":9,"current":6},"b":{"nominal":1}}"#);
        assert_eq!((complete(&seats, "a"), complete(&seats, "b")), (1, 0));
    }

    #[test]
    fn every_created_level_is_deleted() {
        let mut rng = Rng::with_seed(7);
        let sequence = sequence(&mut rng);
        let count = |verb| sequence.requests.iter().filter(|request| request.verb == verb).count();
        assert_eq!(count(Verb::Create), count(Verb::Delete));
        assert!(count(Verb::Seats) > 1);
    }
}
