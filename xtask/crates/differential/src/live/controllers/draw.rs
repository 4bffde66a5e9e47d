//! Values of fields: ordinary ones, and those at and around the limits of numbers.

use fastrand::Rng;
use serde_json::{Value, json};

const INT32: &[i64] = &[0, 1, 2, 99, 100, 101, 32_767, 65_536, 16_777_217, 1_073_741_824, 2_147_483_646, 2_147_483_647];
const PERCENTAGES: &[&str] = &[
    "0%",
    "1%",
    "99%",
    "100%",
    "101%",
    "200%",
    "1000%",
    "65536%",
    "2147483647%",
    "2147483648%",
    "1000000000000%",
    "4611686018427387903%",
    "9223372036854775803%",
    "9223372036854775807%",
];
const QUANTITIES: &[&str] = &[
    "0",
    "1n",
    "1u",
    "1m",
    "999m",
    "1001m",
    "0.1",
    "1.000000001",
    "2147483647",
    "2147483648",
    "4294967297",
    "9007199254740993",
    "9223372036854775",
    "9223372036854775807",
    "9223372036854775807m",
    "1e18",
    "8Ei",
    "1E",
    "9E",
    "5Pi",
];

pub(crate) fn one_of(rng: &mut Rng, all: &[&str]) -> Value {
    all[rng.usize(..all.len())].into()
}

/// Seconds within which every scenario ends.
const SHORTEST: i64 = 600;

/// A number of objects that controllers can create.
pub(crate) fn few(rng: &mut Rng) -> Value {
    rng.i64(0..=12).into()
}

pub(crate) fn some(rng: &mut Rng) -> Value {
    rng.i64(1..=9).into()
}

/// Seconds that do not end while a scenario runs.
pub(crate) fn minutes(rng: &mut Rng) -> Value {
    rng.i64(SHORTEST..=5000).into()
}

/// The same with the limits of int32.
pub(crate) fn boundary_minutes(rng: &mut Rng) -> Value {
    int32(rng).as_i64().unwrap_or_default().max(SHORTEST).into()
}

/// The same with the limits of int64.
pub(crate) fn boundary_hours(rng: &mut Rng) -> Value {
    int64(rng).as_i64().unwrap_or_default().max(SHORTEST).into()
}

pub(crate) fn hundreds(rng: &mut Rng) -> Value {
    rng.i64(1..=1000).into()
}

/// Any int32 that is not negative, most often a special one.
pub(crate) fn int32(rng: &mut Rng) -> Value {
    if rng.u8(..4) == 0 { rng.i64(0..=2_147_483_647).into() } else { INT32[rng.usize(..INT32.len())].into() }
}

/// The same without 0.
pub(crate) fn positive(rng: &mut Rng) -> Value {
    int32(rng).as_i64().unwrap_or(1).max(1).into()
}

pub(crate) fn int64(rng: &mut Rng) -> Value {
    let special = [1, 4_294_967_296, 9_223_372_036, 9_223_372_037, 9_223_372_036_854_775_807_i64];
    if rng.bool() { special[rng.usize(..special.len())].into() } else { int32(rng) }
}

/// A number of objects or a percentage that validation accepts.
pub(crate) fn share(rng: &mut Rng) -> Value {
    if rng.bool() { format!("{}%", rng.u8(1..=100)).into() } else { rng.i64(1..=5).into() }
}

pub(crate) fn boundary_share(rng: &mut Rng) -> Value {
    if rng.u8(..4) == 0 { int32(rng) } else { one_of(rng, PERCENTAGES) }
}

/// For fields with at most 100 %.
pub(crate) fn boundary_share_of_all(rng: &mut Rng) -> Value {
    if rng.bool() {
        positive(rng)
    } else {
        one_of(rng, &["1%", "33%", "34%", "49%", "50%", "51%", "67%", "99%", "100%"])
    }
}

/// An amount such as `137m`, `1.5` or `3Gi`.
pub(crate) fn quantity(rng: &mut Rng) -> Value {
    match rng.u8(..5) {
        0 => format!("{}m", rng.u32(1..5000)).into(),
        1 => format!("{}.{}", rng.u8(..50), rng.u8(1..10)).into(),
        2 => format!("{}Mi", rng.u32(1..4000)).into(),
        3 => format!("{}k", rng.u32(1..4000)).into(),
        _ => rng.u32(1..1000).to_string().into(),
    }
}

pub(crate) fn boundary_quantity(rng: &mut Rng) -> Value {
    one_of(rng, QUANTITIES)
}

/// Between one and six amounts.
pub(crate) fn quantities(rng: &mut Rng) -> Value {
    let count = rng.usize(1..=6);
    (0..count).map(|_| quantity(rng)).collect()
}

/// The same with extreme ones.
pub(crate) fn boundary_quantities(rng: &mut Rng) -> Value {
    let count = rng.usize(1..=6);
    (0..count).map(|_| if rng.bool() { boundary_quantity(rng) } else { quantity(rng) }).collect()
}

/// A seed for values that are not shrunk.
pub(crate) fn seed(rng: &mut Rng) -> Value {
    rng.u32(..).into()
}

pub(crate) fn boolean(rng: &mut Rng) -> Value {
    json!(rng.bool())
}
