//! Which values are allowed, beyond their types; one file per kind of target file.
//!
//! Each rule points at the value that breaks it and says what is correct. Rules only note problems: they change and
//! complete nothing.

mod components;
mod durations;
mod expectations;
mod golden;
mod images;
mod kind;
mod matrix;
mod node;
mod profiles;
mod regressions;
mod releases;
mod requests;
mod resources;
mod runners;
mod target;
mod toolchains;
mod upstream;
mod upstreams;
mod words;

pub(crate) use components::components;
pub(crate) use durations::durations;
pub(crate) use expectations::{differences, expectations};
pub(crate) use golden::{golden, same_value};
pub(crate) use images::images;
pub(crate) use kind::kind;
pub(crate) use matrix::{ci, matrix};
pub(crate) use node::{Others, node};
pub(crate) use profiles::profiles;
pub(crate) use regressions::regressions;
pub(crate) use releases::base;
pub(crate) use requests::requests;
pub(crate) use resources::{resources, same_resource};
pub(crate) use runners::runners;
pub(crate) use target::target;
pub(crate) use toolchains::toolchains;
pub(crate) use upstream::upstream;
pub(crate) use upstreams::upstreams;
pub(crate) use words::major_minor;
