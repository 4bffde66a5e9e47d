//! The raw store under the apiserver: etcd's gRPC, spoken directly, so that nothing of Kubernetes stands in between.

mod client;
mod collector;
mod stream;
mod wire;

pub use client::{KeyValue, LeaseInfo, Store, StoreError};
pub use collector::Collector;
pub(crate) use collector::recorded;
pub use stream::{EVERY_WATCH, Told};
