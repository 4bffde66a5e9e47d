//! The exact evidence of a failure, for every judge of streams.

use super::example::with_frames;
use super::violations;
use crate::excerpt::LINES;

/// (judge, stream, its frames now, the evidence, `NS` for the namespace's prefix)
type Case = (&'static str, usize, &'static str, &'static str);

const CASES: &[Case] = &[
    (
        "watch.reliable",
        1,
        "+a@2 +b@3 -b@5 +b@6 *a@7",
        "store: ADDED NS/a at 2, frame 1
store: ADDED NS/b at 3, frame 2
store: MODIFIED NS/a at 4, not delivered
store: DELETED NS/b at 5, frame 3
store: ADDED NS/b at 6, frame 4
store: MODIFIED NS/a at 7, frame 5
stream 1: frame 1: ADDED NS/a at 2
stream 1: frame 2: ADDED NS/b at 3
stream 1: frame 3: DELETED NS/b at 5
stream 1: frame 4: ADDED NS/b at 6
stream 1: frame 5: MODIFIED NS/a at 7",
    ),
    (
        "watch.ordered",
        1,
        "+a@2 *a@4 +b@3",
        "store: ADDED NS/a at 2, frame 1
store: ADDED NS/b at 3, frame 3
store: MODIFIED NS/a at 4, frame 2
store: DELETED NS/b at 5, after the delivered part
store: ADDED NS/b at 6, after the delivered part
stream 1: frame 1: ADDED NS/a at 2
stream 1: frame 2: MODIFIED NS/a at 4
stream 1: frame 3: ADDED NS/b at 3",
    ),
    (
        "watch.unique",
        2,
        "-b@5 +b@6 +b@6",
        "store: MODIFIED NS/a at 4, before the live part
store: DELETED NS/b at 5, frame 1
store: ADDED NS/b at 6, frame 2
store: MODIFIED NS/a at 7, after the delivered part
store: DELETED NS/a at 8, after the delivered part
stream 2: frame 1: DELETED NS/b at 5
stream 2: frame 2: ADDED NS/b at 6
stream 2: frame 3: ADDED NS/b at 6",
    ),
    (
        "watch.resumable",
        2,
        "*a@4 -b@5",
        "store: ADDED NS/a at 2, before the live part
store: ADDED NS/b at 3, before the live part
store: MODIFIED NS/a at 4, frame 1
store: DELETED NS/b at 5, frame 2
store: ADDED NS/b at 6, after the delivered part
store: MODIFIED NS/a at 7, after the delivered part
stream 2: frame 1: MODIFIED NS/a at 4
stream 2: frame 2: DELETED NS/b at 5",
    ),
    (
        "watch.bookmark",
        1,
        "+a@2 +b@3 !@4 *a@4",
        "store: ADDED NS/a at 2, frame 1
store: ADDED NS/b at 3, frame 2
store: MODIFIED NS/a at 4, frame 4
store: DELETED NS/b at 5, after the delivered part
store: ADDED NS/b at 6, after the delivered part
stream 1: frame 2: ADDED NS/b at 3
stream 1: frame 3: BOOKMARK at 4
stream 1: frame 4: MODIFIED NS/a at 4",
    ),
    (
        "watch.delete-rv",
        5,
        "+a@2 -a@2 +a@7",
        "store: ADDED NS/a at 2, frame 1
store: DELETED NS/a at 4, not delivered
store: ADDED NS/a at 7, frame 3
stream 5: frame 1: ADDED NS/a at 2
stream 5: frame 2: DELETED NS/a at 2
stream 5: frame 3: ADDED NS/a at 7
history: the next DELETED of NS/a is at 4",
    ),
    (
        "watch.matches-etcd-history",
        1,
        "+a@2 +b@3 +a@4 E",
        "history: put NS/a at 4 (version 2, previous 2)
store: ADDED NS/a at 2, frame 1
store: ADDED NS/b at 3, frame 2
store: MODIFIED NS/a at 4, frame 3
store: DELETED NS/b at 5, after the delivered part
store: ADDED NS/b at 6, after the delivered part
stream 1: frame 1: ADDED NS/a at 2
stream 1: frame 2: ADDED NS/b at 3
stream 1: frame 3: ADDED NS/a at 4
stream 1: frame 4: ERROR 410 Expired",
    ),
    (
        "watch.concurrent-agree",
        2,
        "-b@5 *a@7 -a@8",
        "both cover the resource versions after 4 up to 8; 1 events agree before
store: MODIFIED NS/a at 4
store: DELETED NS/b at 5
store: ADDED NS/b at 6
store: MODIFIED NS/a at 7
stream 2: frame 1: DELETED NS/b at 5
stream 2: frame 2: MODIFIED NS/a at 7
stream 2: frame 3: DELETED NS/a at 8
stream 1: frame 5: BOOKMARK at 5
stream 1: frame 6: ADDED NS/b at 6
stream 1: frame 7: MODIFIED NS/a at 7",
    ),
];

#[test]
fn failure_shows_the_smallest_excerpt() {
    for (judge, number, text, evidence) in CASES {
        let history = with_frames(*number, text);
        let found = violations(&history, judge);
        let of_stream = format!("stream {number} ");
        let violation = found.iter().find(|violation| violation.message.contains(&of_stream));
        let seen = violation.map(|violation| violation.evidence.join("\n")).unwrap_or_default();
        assert_eq!(seen, evidence.replace("NS", "/registry/configmaps/ns"), "{judge}: {text}: {found:#?}");
        for (id, judgement) in super::judge_all(&history) {
            let longest = judgement.violations.iter().map(|violation| violation.evidence.len()).max().unwrap_or(0);
            assert!(longest <= LINES, "{judge}, {text}: {id} shows {longest} lines");
        }
    }
}
