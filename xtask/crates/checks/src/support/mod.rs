//! Helpers of several checks. No file here holds a check.

pub(crate) mod arch_mask;
pub(crate) mod assertions;
pub(crate) mod cbor;
pub(crate) mod compare_with_json;
pub(crate) mod encryption_fixture;
pub(crate) mod etcd_requests;
pub(crate) mod expected_events;
pub(crate) mod fault_injector;
pub(crate) mod lease_use;
pub(crate) mod list_rules;
pub(crate) mod metrics;
pub(crate) mod page;
pub(crate) mod raw_connection;
pub(crate) mod samples;
pub(crate) mod stored_bytes;
pub(crate) mod strip_resource_version;
pub(crate) mod too_large;
pub(crate) mod verdict;
pub(crate) mod watch_cache_sync;
pub(crate) mod watch_follow;
pub(crate) mod watch_form_stream;
pub(crate) mod watch_forms;
pub(crate) mod watch_raw;
pub(crate) mod websocket;
pub(crate) mod workload;
