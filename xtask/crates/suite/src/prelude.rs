//! The names that nearly every file of checks uses: the parts of a row, the context, objects, results, and macros.

pub use model::Level::{Extra, Must, Should};
pub use model::Resource;

pub use crate::check::{Check, CheckError, Requirement, Requires, Run, Verdict};
pub use crate::ctx::Ctx;
pub use crate::object::{CONFIG_MAPS, Object, config_map};
pub use crate::{expect, expect_eq, expect_none, here, scenario};
