//! Whole clusters with a node: Pods, rollouts, Services, restarts of components.
//!
//! The table lists the files in the order of the reports; each file holds rows and their functions.

pub(crate) mod custom_resource;
pub(crate) mod deployment;
pub(crate) mod node;
pub(crate) mod restart;
pub(crate) mod rollout;
pub(crate) mod service;

use suite::Check;

pub(crate) static TABLES: &[&[Check]] =
    &[deployment::CHECKS, rollout::CHECKS, service::CHECKS, node::CHECKS, restart::CHECKS, custom_resource::CHECKS];
