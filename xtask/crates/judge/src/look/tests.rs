//! Tests of looks: each documented cause has its look, and another difference at the same place has none of them.

use super::*;

const MIN: &str = "-9223372036854775808";
const MAX: &str = "9223372036854775807";

fn document(text: &str) -> Document {
    Document::parse(text).unwrap()
}

fn seen(left: &str, right: &str) -> Vec<String> {
    let there: Vec<String> = looks(&document(left), &document(right)).into_iter().collect();
    let back: Vec<String> = looks(&document(right), &document(left)).into_iter().collect();
    assert_eq!(there.len(), back.len(), "{left} {right}");
    there
}

#[test]
fn numbers_have_the_look_of_their_cause() {
    for (left, right, expected) in [
        (MIN, MAX, INT64_LIMITS),
        ("\"-8Ei\"", "\"9223372036854775807\"", INT64_LIMITS),
        ("\"-9223372036854775808m\"", "\"9223372036854775807m\"", INT64_LIMITS),
        ("\"-9223372036854775808m\"", "\"0\"", INT64_LIMIT),
        (MAX, "1", INT64_LIMIT),
        (MIN, "5347552017170563071", INT64_LIMIT),
        ("-2147483648", "2147483647", INT32_LIMITS),
        ("5", "2147483647", INT32_LIMIT),
        ("0", "-1", ZERO_AND_MINUS_ONE),
        ("10", "-1", MINUS_ONE),
        ("0", "-36456", ZERO_AND_EVEN),
        ("-9223372036854775803", "-9223372036854775804", CLOSE),
        ("100", "1", ONE),
        ("163", "162", NEXT),
        ("\"0x1.66534a92f0157p-02\"", "\"0x1.66534a92f0159p-02\"", LAST_BITS),
        ("\"NaN\"", "\"0x1p-26\"", LAST_BITS),
    ] {
        assert_eq!(seen(left, right), [expected], "{left} {right}");
        assert_eq!(seen(right, left), [expected], "{right} {left}");
    }
}

#[test]
fn another_difference_has_no_look() {
    for (left, right) in [
        ("5", "7"),
        ("0", "7"),
        ("-5", "5"),
        ("true", "false"),
        ("1.5", "2.5"),
        ("\"1k\"", "\"5m\""),
        ("\"0x1p+00\"", "\"0x1.1p+00\""),
        ("\"NaN\"", "\"0x1p+00\""),
        ("\"a\"", "\"b\""),
        ("\"a-1\"", "\"b-1\""),
    ] {
        let shapes = seen(left, right);
        assert!(["number", "boolean", "string"].contains(&shapes[0].as_str()), "{left} {right}: {shapes:?}");
    }
}

#[test]
fn look_of_a_deep_place_stands_for_all_places() {
    let deep = seen(r#"{"spec":{"a":0,"b":[{"n":0}]}}"#, r#"{"spec":{"a":-1,"b":[{"n":-1}]}}"#);
    assert_eq!(deep, ["0 and -1"]);
    assert_eq!(seen(r#"{"spec":{}}"#, r#"{"spec":{"a":-1}}"#), ["0 and -1"]);
    assert_eq!(seen("{}", r#"{"spec":{"a":-1}}"#), ["0 and -1"]);
    let member = seen(r#"{"surge":0,"next":200}"#, r#"{"surge":-1,"next":199}"#);
    assert_eq!(member, [".next: next integers", ".surge: 0 and -1"]);
}

#[test]
fn place_without_a_look_is_named_next_to_one_with_a_look() {
    let both = seen(r#"{"spec":{"a":0,"b":5}}"#, r#"{"spec":{"a":-1,"b":7}}"#);
    assert_eq!(both, [".spec.b number", "0 and -1"]);
    assert_eq!(seen(r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#), ["order"]);
    assert_eq!(seen(r#"{"a":[5]}"#, r#"{"a":[]}"#), [".a[*] number/absent"]);
}

#[test]
fn one_error_more_is_the_only_difference() {
    let limit = r#""a should be less than or equal to -9223372036854775808""#;
    let both = r#""b is wrong""#;
    assert_eq!(seen(&format!("[{limit},{both}]"), &format!("[{both}]")), ["[*]: text with a limit of int64"]);
    assert_eq!(seen(&format!("[{both}]"), "[]"), ["[*] string/absent"]);
    let numbers = [r#"["is -1"]"#, r#"["is 0"]"#];
    assert_eq!(seen(numbers[0], numbers[1]), ["[*]: 0 and -1"]);
    assert_eq!(seen(r#"["x","is -1"]"#, r#"["y"]"#), ["[*] absent/string", "[*] string/absent", "[*]: text with -1"]);
    assert_eq!(seen(r#"["x","y"]"#, r#"["y","x"]"#), ["[*] order"]);
}

#[test]
fn list_of_texts_is_compared_item_by_item_if_each_has_a_look() {
    let floats = [r#"["0x1p+00","0x1.00a3536fb48b6p+00"]"#, r#"["0x1p+00","0x1.00a3536fb48b7p+00"]"#];
    assert_eq!(seen(floats[0], floats[1]), ["[*]: last bits of a float"]);
}

fn answers(left: (u16, &str), right: (u16, &str)) -> Vec<String> {
    let (a, b) = (document(left.1), document(right.1));
    looks_of_answers((left.0, Some(&a)), (right.0, Some(&b)), false).into_iter().collect()
}

fn status(messages: &[&str]) -> String {
    let causes = messages.iter().map(|message| Document::object([("message", Document::text(*message))]));
    let details = Document::object([("causes", Document::List(causes.collect()))]);
    Document::object([("message", Document::text(messages.join(", "))), ("details", details)]).to_string()
}

#[test]
fn errors_are_compared_by_their_messages() {
    let wrong = status(&["Invalid value: -1: must be greater than or equal to 0"]);
    assert_eq!(answers((200, r#"{"spec":{"replicas":0}}"#), (422, &wrong)), ["answer/error", "text with -1"]);
    let other = status(&["Invalid value: 5: must be less"]);
    assert_eq!(answers((200, "{}"), (422, &other)), ["answer/error", "other text"]);
    let zero = status(&["Invalid value: 0: must be greater than or equal to 0"]);
    assert_eq!(answers((422, &zero), (422, &wrong)), ["0 and -1", "error/error"]);
    assert_eq!(answers((422, &zero), (500, &zero)), ["error/error", "other"]);
    let range = r#"{"message":"pods \"a\" is forbidden: maximum cpu usage per Pod is 1, but limit is 10e40"}"#;
    assert_eq!(answers((201, "{}"), (403, range)), ["answer/error", "text about a LimitRange"]);
}

#[test]
fn objects_are_compared_with_or_without_places() {
    let (a, b) = (document(r#"{"spec":{"n":0,"m":5}}"#), document(r#"{"spec":{"n":-1,"m":7}}"#));
    let of = |places| looks_of_answers((200, Some(&a)), (200, Some(&b)), places).into_iter().collect::<Vec<_>>();
    assert_eq!(of(false), ["0 and -1", "answer/answer", "other"]);
    assert_eq!(of(true), [".spec.m number", ".spec.n: 0 and -1", "answer/answer"]);
    let unknown = looks_of_answers((200, Some(&a)), (200, None), true);
    assert!(unknown.contains(UNKNOWN));
}

/// Any text of a server may have the form of a float, and any list may be long.
#[test]
fn hostile_texts_neither_overflow_nor_take_quadratic_time() {
    for text in ["0x1p-2147483648", "0x1.8p-2147483648", "0x1p2147483647", "0x.p", "0xp99999999999"] {
        assert_eq!(seen(&format!("\"{text}\""), "\"0x1p+00\"").len(), 1, "{text}");
    }
    let list = |from: usize| serde_json::to_string(&(from..from + 50_000).map(|n| format!("t{n}")).collect::<Vec<_>>());
    let (left, right) = (list(0).unwrap(), list(1).unwrap());
    assert_eq!(seen(&left, &format!("{},\"more\"]", right.trim_end_matches(']'))).len(), 2);
}
