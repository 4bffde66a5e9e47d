//! Servers that break one promise each, to prove that the suite notices: a TLS reverse proxy in front of a real apiserver
//! (`proxy`), another one between
//! it and its store (`store`), and the table of what it breaks and which check must catch it (`table`).
//!
//! Nothing here judges, and nothing here knows a check beyond its id.

mod call;
mod door;
#[doc(hidden)]
pub mod fuzzing;
mod message;
mod proxy;
mod store;
mod stream;
mod table;

pub use call::{Call, Reply};
pub use message::Message;
pub use proxy::Proxy;
pub use store::{OnMessage, StoreChange, StoreProxy};
pub use table::{Change, Filter, Means, Mutant, OnReply, OnRequest, OnWatch, all};
