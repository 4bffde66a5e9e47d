//! Boundary values by class. Each value has the name of its class, which groups findings.

use fastrand::Rng;

use super::schema::{Class, Shape};
use crate::document::Document;

/// A value with the class that it stands for.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) class: &'static str,
    pub(crate) document: Document,
}

/// Literals of numbers by class.
const NUMBERS: &[(&str, &[&str])] = &[
    ("integer near 0", &["0", "1", "-1", "2", "7", "-0", "100"]),
    ("float near 0", &["0.0", "1.0", "-1.0", "-0.0", "1e0", "2E0", "10e-1", "100e-2"]),
    ("fraction", &["0.5", "3.5", "-0.5", "1e-7", "0.1", "1.9999999999999999", "5e-324"]),
    ("integer near 2^15", &["32766", "32768", "-32768", "65535", "65536"]),
    ("integer near 2^31", &["2147483647", "2147483648", "-2147483648", "-2147483649", "2147483646"]),
    ("float near 2^31", &["2147483647.0", "2147483648.0", "-2147483649.0", "2.147483648e9", "2147483647.5"]),
    ("integer near 2^32", &["4294967295", "4294967296", "4294967297", "-4294967297"]),
    ("float near 2^32", &["4294967295.0", "4294967296.0", "4294967297.0", "1e10", "-1e10", "4.294967297e9"]),
    ("integer near 2^53", &["9007199254740991", "9007199254740992", "9007199254740993", "-9007199254740993"]),
    ("float near 2^53", &["9007199254740992.0", "9007199254740993.0", "9.007199254740993e15", "1e16"]),
    (
        "integer near 2^63",
        &["9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"],
    ),
    ("float near 2^63", &["9223372036854775807.0", "9223372036854775808.0", "9.223372036854775e18", "-9.3e18", "1e19"]),
    ("integer near 2^64", &["18446744073709551615", "18446744073709551616", "18446744073709551617"]),
    ("float near 2^64", &["18446744073709551615.0", "1.8446744073709552e19", "2e19"]),
    ("huge", &["1e20", "1e30", "-1e30", "1e100", "1.7976931348623157e308", "100000000000000000000000000000"]),
    ("beyond a double", &["1e309", "1e400", "-1e400"]),
];

/// Spellings that a YAML reader may take for numbers.
const YAML_NUMBERS: &[&str] = &[
    "0x10",
    "0o17",
    "017",
    "1_000",
    "+1",
    ".5",
    "5.",
    "1e3",
    ".inf",
    "-.inf",
    ".nan",
    "0b11",
    "1:30",
    "~",
    "1e+30",
    "0x7fffffffffffffff",
    "0xffffffffffffffff",
];

const QUANTITIES: &[(&str, &[&str])] = &[
    ("plain quantity", &["0", "1", "100m", "1k", "1Ki", "1.5", "2", "1e3", "1E3", "0.1", "1500m", "1.5Gi", "128Mi"]),
    (
        "precise quantity",
        &[
            "1n",
            "0.000000001",
            "0.1n",
            "1.0000000001",
            "123456789123456789n",
            "0.5u",
            "1e-9",
            "1e-12",
            "1.000000000001k",
        ],
    ),
    ("negative quantity", &["-1", "-0", "-1m", "-1Ki", "-9223372036854775808"]),
    (
        "large quantity",
        &[
            "9223372036854775807",
            "9223372036854775808",
            "9223372036854775807m",
            "9007199254740993",
            "8Ei",
            "7.999Ei",
            "9E",
            "9.3E",
            "1e18",
            "1e19",
        ],
    ),
    (
        "huge quantity",
        &[
            "1e30",
            "16Ei",
            "1000E",
            "1e300",
            "99999999999999999999999999",
            "12345678901234567890123m",
            "1e1000",
            "1e-1000",
        ],
    ),
    ("malformed quantity", &["", "1 k", "1KI", "k", "1e", "+", ".", "0x10", "1,5", "١", "NaN", "Inf", "1e1.5"]),
    ("spelling of a quantity", &["+1", "01", "1.", ".5", "1.500", "001Ki", "1e03", "1E+3", "+0.50Mi"]),
];

const DURATIONS: &[(&str, &[&str])] = &[
    ("plain duration", &["1s", "1h30m", "1.5s", "100ms", "0", "0s", "1m0s", "3600s"]),
    (
        "precise duration",
        &["1ns", "0.1ns", "0.0000000001s", "1.000000001s", "1µs", "1us", "0.3333333333333333333h", "1.9999999999999s"],
    ),
    (
        "large duration",
        &[
            "2562047h47m16.854775807s",
            "2562047h47m16.854775808s",
            "9223372036s",
            "9223372037s",
            "-2562047h47m16.854775808s",
            "9223372036854775807ns",
            "1e9s",
        ],
    ),
    ("malformed duration", &["", "1", "s", "1x", "-", "1h-1m", ".s", "1d", "1e3s"]),
];

const TIMES: &[(&str, &[&str])] = &[
    (
        "plain time",
        &["2020-01-02T03:04:05Z", "2020-01-02T03:04:05.123456Z", "1970-01-01T00:00:00Z", "2000-02-29T23:59:59Z"],
    ),
    (
        "precise time",
        &[
            "2020-01-02T03:04:05.123456789Z",
            "2020-01-02T03:04:05.9999999999Z",
            "2020-01-02T03:04:05.1Z",
            "2020-01-02T03:04:05.000000Z",
        ],
    ),
    (
        "time with an offset",
        &[
            "2020-01-02T03:04:05+02:00",
            "2020-01-02T03:04:05-23:59",
            "2020-01-02T03:04:05.5+05:30",
            "2020-01-02T03:04:05+24:00",
        ],
    ),
    (
        "extreme time",
        &[
            "0000-01-01T00:00:00Z",
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59.999999Z",
            "2038-01-19T03:14:08Z",
            "1677-09-21T00:12:43Z",
            "2262-04-11T23:47:17Z",
            "1969-12-31T23:59:59Z",
        ],
    ),
    (
        "malformed time",
        &[
            "",
            "2020-01-02",
            "2020-13-01T00:00:00Z",
            "2020-01-02T24:00:00Z",
            "2020-01-02t03:04:05z",
            "2020-01-02T03:04:60Z",
            "2020-01-02T03:04:05",
            "10000-01-01T00:00:00Z",
            "2020-01-02T3:04:05Z",
            "2020-01-02T03:04:05,5Z",
        ],
    ),
];

/// A MicroTime has six digits of a second, neither more nor fewer.
const MICRO_TIMES: &[(&str, &[&str])] = &[(
    "time with microseconds",
    &[
        "2020-01-02T03:04:05.123456Z",
        "2020-01-02T03:04:05.000001Z",
        "2020-01-02T03:04:05.999999+05:30",
        "1969-12-31T23:59:59.999999Z",
        "0001-01-01T00:00:00.000001Z",
        "9999-12-31T23:59:59.999999Z",
    ],
)];

const BYTES: &[(&str, &[&str])] = &[
    ("plain base64", &["", "eA==", "AAEC", "/+8=", "8J+YgA=="]),
    ("malformed base64", &["eA", "eA=", "e A==", "eA==\n", "_-8=", "eB==", "!", "====", "eA==eA=="]),
];

const TEXTS: &[(&str, &[&str])] = &[
    (
        "plain string",
        &[
            "",
            "a",
            "x-1",
            "None",
            "true",
            "1",
            "null",
            "Always",
            "archproof.example/x",
            "a.b",
            "/a/b",
            "10.1.2.3",
            "::1",
            "2001:DB8::1",
        ],
    ),
    (
        "composed and decomposed characters",
        &["é", "e\u{301}", "ﬁ", "Å", "A\u{30a}", "\u{212b}", "각", "\u{1100}\u{1161}\u{11a8}"],
    ),
    (
        "unusual characters",
        &[
            "\u{0}",
            "\u{7f}",
            "\u{feff}",
            "\u{2028}",
            "\u{1f600}",
            "\u{10ffff}",
            "\u{fffd}",
            "ß",
            "İ",
            "ı",
            "\t",
            "\n",
            "<&>",
            "\u{202e}a",
        ],
    ),
    (
        "number in a string",
        &[
            "1e30",
            "9223372036854775808",
            "0x10",
            "-1",
            "+1",
            "1.0",
            "NaN",
            "018446744073709551616",
            "50%",
            "2147483648%",
        ],
    ),
    (
        "expression",
        &[
            "object.spec.replicas > 9223372036854775807",
            "1.0/0.0 > 1e308",
            "double('1e30') == 1e30",
            "int(1e30) == 0",
            "uint(1e19) > 0u",
            "duration('2562047h47m17s') > duration('1s')",
        ],
    ),
];

const PERCENTAGES: &[(&str, &[&str])] = &[
    ("percentage", &["0%", "1%", "50%", "100%", "101%", "33%"]),
    (
        "extreme percentage",
        &["-1%", "2147483647%", "2147483648%", "9223372036854775807%", "9223372036854775808%", "99999999999999999999%"],
    ),
    ("malformed percentage", &["%", "1.5%", "1 %", "1%%", "+1%", "1e3%", "０%"]),
    ("port name", &["http", "a-b", "A", "-", "aaaaaaaaaaaaaaaa"]),
];

/// Literals with escapes that the printer of documents would not write.
const RAW_TEXTS: &[&str] = &[r#""\ud800""#, r#""\u0065\u0301""#, r#""\ud83d\ude00""#, r#""\/""#, r#""\u0000""#];

/// A value for a place of this shape; now and then, one of another type.
pub(crate) fn value(rng: &mut Rng, shape: &Shape) -> Value {
    if rng.u8(..100) < 10 {
        return misfit(rng);
    }
    if !shape.limits.is_empty() && rng.u8(..3) == 0 {
        return at_a_limit(rng, &shape.limits);
    }
    match shape.class {
        Class::Integer | Class::Number => number(rng),
        Class::Quantity if rng.u8(..3) == 0 => number(rng),
        Class::Quantity => text(rng, QUANTITIES),
        Class::IntOrText if rng.bool() => number(rng),
        Class::IntOrText => text(rng, PERCENTAGES),
        Class::Duration => text(rng, DURATIONS),
        Class::MicroTime if rng.bool() => text(rng, MICRO_TIMES),
        Class::Time | Class::MicroTime => text(rng, TIMES),
        Class::Bytes => text(rng, BYTES),
        Class::Text if !shape.choices.is_empty() && rng.bool() => {
            let choice = shape.choices.get(rng.usize(..shape.choices.len())).cloned().unwrap_or_default();
            Value { class: "one of the choices", document: Document::text(choice) }
        }
        Class::Text => any_text(rng),
        Class::Bool => Value { class: "boolean", document: Document::Bool(rng.bool()) },
        Class::List => list(rng),
        Class::Object | Class::Any => object(rng),
    }
}

/// A valid amount of a resource. A power of ten with a suffix or exponent is kept as digits and exponent, and sums of
/// amounts with different exponents need many digits.
pub(crate) fn amount(rng: &mut Rng) -> Document {
    let digits =
        ["1", "1", "2", "5", "9", "123", "0.5", "1.5", "999", "36456", "9007199254740993", "9223372036854775807"];
    let digits = digits[rng.usize(..digits.len())];
    let suffixes = ["", "", "m", "u", "n", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    Document::text(match rng.u8(..4) {
        0 => format!("{digits}e{}", rng.i32(-3..45)),
        1 => format!("1e{}", rng.i32(0..45)),
        _ => format!("{digits}{}", suffixes[rng.usize(..suffixes.len())]),
    })
}

/// A number of the schema, as it is there or in the other spelling.
fn at_a_limit(rng: &mut Rng, limits: &[String]) -> Value {
    let literal = &limits[rng.usize(..limits.len())];
    let spelled = match literal.strip_suffix(".0") {
        Some(integer) if rng.bool() => integer.to_owned(),
        None if rng.bool() && literal.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') => {
            format!("{literal}.0")
        }
        _ => literal.clone(),
    };
    Value { class: "number of the schema", document: Document::Number(spelled) }
}

/// A literal that only a YAML reader may take for a number.
pub(crate) fn yaml_number(rng: &mut Rng) -> Value {
    let literal = YAML_NUMBERS[rng.usize(..YAML_NUMBERS.len())];
    Value { class: "YAML spelling of a number", document: Document::Number(literal.to_owned()) }
}

pub(crate) fn number(rng: &mut Rng) -> Value {
    let (class, literals) = pick(rng, NUMBERS);
    Value { class, document: Document::Number(literals.to_owned()) }
}

fn text(rng: &mut Rng, table: &'static [(&'static str, &'static [&'static str])]) -> Value {
    let (class, text) = pick(rng, table);
    Value { class, document: Document::text(text) }
}

fn any_text(rng: &mut Rng) -> Value {
    match rng.u8(..20) {
        0 => Value { class: "long string", document: Document::text("x".repeat(rng.usize(200..70_000))) },
        1 => {
            let literal = RAW_TEXTS[rng.usize(..RAW_TEXTS.len())];
            Value { class: "escaped string", document: Document::Text(literal.to_owned()) }
        }
        2 => text(rng, QUANTITIES),
        3 => text(rng, DURATIONS),
        4 => text(rng, TIMES),
        _ => text(rng, TEXTS),
    }
}

fn list(rng: &mut Rng) -> Value {
    let item = || Document::text("a");
    match rng.u8(..5) {
        0 => Value { class: "empty list", document: Document::List(Vec::new()) },
        1 => {
            Value { class: "list of equal items", document: Document::List(vec![item(), item(), Document::text("b")]) }
        }
        2 => Value { class: "list with null", document: Document::List(vec![Document::Null, item()]) },
        3 => {
            Value { class: "list of numbers", document: Document::List((0..3).map(|_| number(rng).document).collect()) }
        }
        _ => Value { class: "list of an object", document: Document::List(vec![object(rng).document]) },
    }
}

fn object(rng: &mut Rng) -> Value {
    let number = number(rng).document;
    match rng.u8(..6) {
        0 => Value { class: "empty object", document: Document::Object(Vec::new()) },
        1 => Value { class: "object with an unknown field", document: Document::object([("unknownField", number)]) },
        2 => Value { class: "object with null", document: Document::object([("a", Document::Null)]) },
        3 => Value {
            class: "object with duplicate keys",
            document: Document::object([("a", Document::text("x")), ("b", number), ("a", Document::text("y"))]),
        },
        4 => Value { class: "deep object", document: deep(rng.usize(20..250)) },
        _ => Value { class: "object of a number", document: Document::object([("a", number)]) },
    }
}

fn deep(levels: usize) -> Document {
    (0..levels).fold(Document::Null, |inner, _| Document::object([("a", inner)]))
}

fn misfit(rng: &mut Rng) -> Value {
    match rng.u8(..7) {
        0 => Value { class: "null", document: Document::Null },
        1 => Value { class: "boolean", document: Document::Bool(true) },
        2 => list(rng),
        3 => object(rng),
        4 => number(rng),
        _ => any_text(rng),
    }
}

fn pick(rng: &mut Rng, table: &'static [(&'static str, &'static [&'static str])]) -> (&'static str, &'static str) {
    let (class, values) = table[rng.usize(..table.len())];
    (class, values[rng.usize(..values.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_contain_every_boundary() {
        let all: Vec<&str> = NUMBERS.iter().flat_map(|(_, literals)| literals.iter().copied()).collect();
        for literal in ["1e30", "4294967297.0", "9223372036854775808", "-1", "9007199254740993", "1e20", "-2147483649"]
        {
            assert!(all.contains(&literal), "{literal}");
        }
        assert!(all.iter().all(|literal| Document::parse(literal).is_ok()));
    }

    #[test]
    fn same_seed_gives_same_value() {
        let shape = Shape { class: Class::Quantity, format: String::new(), ..Shape::default() };
        let values = |seed| {
            let mut rng = Rng::with_seed(seed);
            (0..50).map(|_| value(&mut rng, &shape).document.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(values(1), values(1));
        assert_ne!(values(1), values(2));
    }
}
