//! The raw store under the apiserver, accessed directly through etcd's gRPC API, without any Kubernetes code.

mod administration;
mod client;
mod collector;
mod range_stream;
mod stream;
mod wire;

pub use administration::{Alarm, AlarmKind, MemberState};
pub use client::{KeyValue, LeaseInfo, Store};
pub use collector::Collector;
pub(crate) use collector::recorded;
pub use range_stream::{RangeAnswer, RangeStream};
pub use stream::{EVERY_WATCH, StoreEvent, WatchGroup, WatchMessage, WatchRecord, WatchSpec};
