//! Servers that break one promise each, to prove that the suite notices: a TLS reverse proxy in front of a real
//! apiserver (`proxy`), another one in front of its store, for the apiserver or for the suite (`store`), and the table of
//! the mutants, each with the check that must catch it (`table`).
//!
//! This crate does not judge, and it knows only the ids of checks.

mod call;
#[doc(hidden)]
pub mod fuzzing;
mod message;
mod proxy;
mod store;
mod stream;
mod table;
mod tls_listener;

pub use call::{Call, Reply};
pub use message::Message;
pub use proxy::Proxy;
pub use store::{OnMessage, StoreChange, StoreProxy};
pub use table::{Change, Filter, Means, Mutant, OnReply, OnRequest, OnWatch, WITHOUT, all};
