//! Servers that break one promise each, to prove that the suite notices: a TLS reverse proxy in front of a real apiserver
//! (`proxy`), and the table of what it breaks and which check must catch it (`table`).
//!
//! Nothing here judges, and nothing here knows a check beyond its id.

mod call;
mod proxy;
mod stream;
mod table;

pub use call::{Call, Reply};
pub use proxy::Proxy;
pub use table::{Change, Filter, Means, Mutant, OnReply, OnRequest, OnWatch, all};
