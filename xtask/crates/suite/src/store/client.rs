//! Requests to one etcd, to one member at a time: Range at a revision, Put, DeleteRange, Compact, LeaseTimeToLive,
//! Status, Defragment, HashKV.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use http::uri::PathAndQuery;
use hyper_util::client::legacy::connect::HttpConnector;
use model::{StoreInfo, StoreKind};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::wire;
use crate::api::chain;
use crate::error::StoreError;

/// The largest answer is a whole store; etcd does not limit its answers.
const LARGEST_ANSWER: usize = 1 << 30;
/// Bytes; the size that HTTP/2 begins with (RFC 9113, 6.9.2). The HTTP library's default is 2 MiB.
const SMALLEST_WINDOW: u32 = 65_535;

/// Connections to the members of one etcd, of which one is used at a time; cheap to clone.
#[derive(Clone)]
pub struct Store {
    members: Vec<Channel>,
    /// The member in use; if it does not answer, the next one is used.
    current: Arc<AtomicUsize>,
    limit: Duration,
    kind: StoreKind,
}

/// A key with its value at some revision, from a Range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValue {
    pub key: String,
    pub value: Vec<u8>,
    pub create_rev: i64,
    pub mod_rev: i64,
    pub version: i64,
    pub lease: i64,
}

/// A lease as LeaseTimeToLive describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// Seconds left; -1 once it has expired.
    pub ttl: i64,
    /// Seconds at its grant.
    pub granted: i64,
    pub keys: Vec<String>,
}

impl Store {
    /// A store without an endpoint refuses every request, see [`StoreError::is_absent`].
    pub async fn connect(info: &StoreInfo, limit: Duration) -> anyhow::Result<Store> {
        Store::connect_with(info, limit, None).await
    }

    /// Like [`Store::connect`], but at most 64 KiB of an answer wait for their reader: the store has to keep the rest
    /// of a stream until the caller reads it.
    pub async fn connect_unbuffered(info: &StoreInfo, limit: Duration) -> anyhow::Result<Store> {
        Store::connect_with(info, limit, Some(SMALLEST_WINDOW)).await
    }

    async fn connect_with(info: &StoreInfo, limit: Duration, window: Option<u32>) -> anyhow::Result<Store> {
        if info.endpoint.is_empty() {
            return Ok(Store { members: Vec::new(), current: Arc::default(), limit, kind: info.kind });
        }
        let alone = std::slice::from_ref(&info.endpoint);
        let endpoints = if info.members.is_empty() { alone } else { &info.members };
        let mut members = Vec::new();
        for endpoint in endpoints {
            members.push(Store::dial(info, endpoint, limit, window).await?);
        }
        Ok(Store { members, current: Arc::default(), limit, kind: info.kind })
    }

    async fn dial(info: &StoreInfo, address: &str, limit: Duration, window: Option<u32>) -> anyhow::Result<Channel> {
        let tls = tls::client(&info.tls, tls::Alpn::Unset)?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .enable_http2()
            .wrap_connector(http);
        let endpoint = Endpoint::from_shared(address.to_owned())
            .with_context(|| format!("`{address}` is not an endpoint"))?
            .connect_timeout(limit)
            .initial_stream_window_size(window);
        let channel = endpoint.connect_with_connector(connector).await;
        channel.map_err(|error| anyhow::anyhow!("failed to connect to the store at {address}: {}", chain(&error)))
    }

    /// Each member as a separate store, in the order of their components.
    pub fn members(&self) -> Vec<Store> {
        let alone = |member: &Channel| Store {
            members: vec![member.clone()],
            current: Arc::default(),
            limit: self.limit,
            kind: self.kind,
        };
        self.members.iter().map(alone).collect()
    }

    /// Selects the next member, because the current one did not answer.
    pub(crate) fn next_member(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }

    /// The member's own id, and the id of the member that it believes to be the leader.
    pub async fn status(&self) -> Result<(u64, u64), StoreError> {
        let answer: wire::StatusResponse = self.call("Maintenance", "Status", wire::StatusRequest {}).await?;
        Ok((answer.header.map_or(0, |header| header.member_id), answer.leader))
    }

    /// The whole database file as it is now, with etcd's checksum at its end.
    pub async fn snapshot(&self) -> Result<Vec<u8>, StoreError> {
        let failed = |code, message| StoreError { what: "etcd Maintenance/Snapshot".into(), code, message };
        let of = |status: tonic::Status| failed(status.code(), status.message().to_owned());
        let whole = async {
            let mut grpc = self.channel();
            grpc.ready().await.map_err(|error| failed(tonic::Code::Unavailable, chain(&error)))?;
            let path = method_path("Maintenance", "Snapshot");
            let codec = ProstCodec::<wire::SnapshotRequest, wire::SnapshotResponse>::default();
            let request = tonic::Request::new(wire::SnapshotRequest {});
            let mut pieces = grpc.server_streaming(request, path, codec).await.map_err(of)?.into_inner();
            let mut file = Vec::new();
            while let Some(piece) = pieces.message().await.map_err(of)? {
                file.extend_from_slice(&piece.blob);
            }
            Ok(file)
        };
        let late = || {
            failed(
                tonic::Code::DeadlineExceeded,
                format!("the snapshot was not complete within {:.0} s", self.limit.as_secs_f64()),
            )
        };
        tokio::time::timeout(self.limit, whole).await.unwrap_or_else(|_| Err(late()))
    }

    /// Rewrites the member's database without its unused pages; returns when that is done. The member answers no request
    /// for a key meanwhile.
    pub async fn defragment(&self) -> Result<(), StoreError> {
        self.call::<_, wire::HeaderOnly>("Maintenance", "Defragment", wire::DefragmentRequest {}).await.map(drop)
    }

    /// The hash of all keys up to a revision, and the revision up to which they are compacted.
    pub async fn hash(&self, revision: i64) -> Result<(u32, i64), StoreError> {
        let request = wire::HashKvRequest { revision };
        let answer: wire::HashKvResponse = self.call("Maintenance", "HashKV", request).await?;
        Ok((answer.hash, answer.compact_revision))
    }

    /// One key, at `revision` (0: now).
    pub async fn get(&self, key: &str, revision: i64) -> Result<Option<KeyValue>, StoreError> {
        let request = wire::RangeRequest { key: key.into(), revision, ..Default::default() };
        let answer: wire::RangeResponse = self.call("KV", "Range", request).await?;
        Ok(answer.kvs.into_iter().next().map(KeyValue::from))
    }

    /// All keys that begin with `prefix`, at `revision` (0: now), in key order; with the revision of the answer.
    pub async fn list(&self, prefix: &str, revision: i64) -> Result<(Vec<KeyValue>, i64), StoreError> {
        self.range(prefix, revision, false).await
    }

    /// Like [`Store::list`] without the values; an empty prefix means the whole store.
    pub async fn keys(&self, prefix: &str, revision: i64) -> Result<(Vec<KeyValue>, i64), StoreError> {
        self.range(prefix, revision, true).await
    }

    /// The store's current revision, from the member that answers first.
    pub async fn revision(&self) -> Result<i64, StoreError> {
        let members = self.members();
        if members.is_empty() {
            return self.own_revision().await;
        }
        let asked = members.iter().map(|member| Box::pin(member.own_revision()));
        futures::future::select_ok(asked).await.map(|(revision, _)| revision)
    }

    async fn own_revision(&self) -> Result<i64, StoreError> {
        let request = wire::RangeRequest { key: b"\0".to_vec(), limit: 1, keys_only: true, ..Default::default() };
        let answer: wire::RangeResponse = self.call("KV", "Range", request).await?;
        Ok(answer.header.map_or(0, |header| header.revision))
    }

    /// Writes a key directly, without the apiserver.
    pub async fn put(&self, key: &str, value: &[u8]) -> Result<i64, StoreError> {
        if self.kind == StoreKind::Etcd {
            let request = wire::PutRequest { key: key.into(), value: value.to_vec(), lease: 0 };
            let answer: wire::HeaderOnly = self.call("KV", "Put", request).await?;
            return Ok(answer.header.map_or(0, |header| header.revision));
        }
        // kine answers Put with success but does nothing unless the key is the last one that was written: it updates
        // the key only if its revision is the store's revision. An apiserver sends only transactions.
        // https://github.com/k3s-io/kine/blob/v0.16.4/pkg/server/put.go
        // A round fails only if another client writes the same key meanwhile; the case's deadline limits the loop.
        loop {
            let last = self.get(key, 0).await?.map_or(0, |kv| kv.mod_rev);
            if let Some(revision) = self.put_if(key, last, value).await? {
                return Ok(revision);
            }
        }
    }

    /// Deletes one key directly, without the apiserver.
    pub async fn delete(&self, key: &str) -> Result<i64, StoreError> {
        let request = wire::DeleteRangeRequest { key: key.into(), range_end: Vec::new() };
        let answer: wire::HeaderOnly = self.call("KV", "DeleteRange", request).await?;
        Ok(answer.header.map_or(0, |header| header.revision))
    }

    /// Writes several keys directly, without the apiserver, all at one revision; a key without a value is deleted.
    pub async fn write_together(&self, changes: &[(&str, Option<&[u8]>)]) -> Result<i64, StoreError> {
        let op = |(key, value): &(&str, Option<&[u8]>)| {
            let key: Vec<u8> = (*key).into();
            match value {
                Some(value) => {
                    let put = Some(wire::PutRequest { key, value: value.to_vec(), lease: 0 });
                    wire::RequestOp { put, ..Default::default() }
                }
                None => {
                    let delete = Some(wire::DeleteRangeRequest { key, range_end: Vec::new() });
                    wire::RequestOp { delete, ..Default::default() }
                }
            }
        };
        let request = wire::TxnRequest { success: changes.iter().map(op).collect(), ..Default::default() };
        let answer: wire::HeaderOnly = self.call("KV", "Txn", request).await?;
        Ok(answer.header.map_or(0, |header| header.revision))
    }

    /// Writes a key if its last change was at `mod_revision`, as an apiserver does. Returns None if it was not.
    pub async fn put_if(&self, key: &str, mod_revision: i64, value: &[u8]) -> Result<Option<i64>, StoreError> {
        let same = wire::ModRevisionIs { result: 0, target: wire::MOD, key: key.into(), mod_revision };
        let put = Some(wire::PutRequest { key: key.into(), value: value.to_vec(), lease: 0 });
        // kine supports only the transactions of an apiserver, which reads the key on failure.
        let range = Some(wire::RangeRequest { key: key.into(), ..Default::default() });
        let request = wire::TxnRequest {
            compare: vec![same],
            success: vec![wire::RequestOp { put, ..Default::default() }],
            failure: vec![wire::RequestOp { range, ..Default::default() }],
        };
        let answer: wire::TxnResponse = self.call("KV", "Txn", request).await?;
        Ok(answer.succeeded.then(|| answer.header.map_or(0, |header| header.revision)))
    }

    /// Compacts the store, which removes all revisions before `revision`; returns when that is physically done.
    pub async fn compact(&self, revision: i64) -> Result<(), StoreError> {
        let request = wire::CompactionRequest { revision, physical: true };
        self.call::<_, wire::HeaderOnly>("KV", "Compact", request).await.map(drop)
    }

    /// Writes a key with a new lease; returns the lease.
    pub async fn put_leased(&self, key: &str, value: &[u8], seconds: u32) -> Result<i64, StoreError> {
        let request = wire::LeaseGrantRequest { ttl: seconds.into() };
        let lease = self.call::<_, wire::LeaseGrantResponse>("Lease", "LeaseGrant", request).await?.id;
        let request = wire::PutRequest { key: key.into(), value: value.to_vec(), lease };
        self.call::<_, wire::HeaderOnly>("KV", "Put", request).await?;
        Ok(lease)
    }

    pub async fn lease(&self, id: i64) -> Result<LeaseInfo, StoreError> {
        let request = wire::LeaseTimeToLiveRequest { id, keys: true };
        let answer: wire::LeaseTimeToLiveResponse = self.call("Lease", "LeaseTimeToLive", request).await?;
        let keys = answer.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
        Ok(LeaseInfo { ttl: answer.ttl, granted: answer.granted_ttl, keys })
    }

    /// `[key, range_end)` for all keys with a prefix; an empty prefix means the whole store.
    pub(crate) fn range_of(&self, prefix: &str) -> (Vec<u8>, Vec<u8>) {
        range_of(if prefix.is_empty() { self.kind.root() } else { prefix })
    }

    /// Returns an error if the store has no endpoint; `what` names the request.
    pub(super) fn must_be_there(&self, what: impl Fn() -> String) -> Result<(), StoreError> {
        let absent =
            || StoreError { what: what(), code: tonic::Code::FailedPrecondition, message: crate::error::ABSENT.into() };
        if self.members.is_empty() { Err(absent()) } else { Ok(()) }
    }

    /// The time limit for an answer.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) fn channel(&self) -> Grpc<Channel> {
        let current = self.current.load(Ordering::Relaxed) % self.members.len();
        Grpc::new(self.members[current].clone()).max_decoding_message_size(LARGEST_ANSWER)
    }

    async fn range(&self, prefix: &str, revision: i64, keys_only: bool) -> Result<(Vec<KeyValue>, i64), StoreError> {
        let (key, range_end) = self.range_of(prefix);
        let request = wire::RangeRequest { key, range_end, revision, keys_only, limit: 0 };
        let answer: wire::RangeResponse = self.call("KV", "Range", request).await?;
        let at = if revision > 0 { revision } else { answer.header.map_or(0, |header| header.revision) };
        Ok((answer.kvs.into_iter().map(KeyValue::from).collect(), at))
    }

    pub(super) async fn call<Q, A>(&self, service: &str, method: &str, request: Q) -> Result<A, StoreError>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let what = || format!("etcd {service}/{method}");
        let failed = |code, message| StoreError { what: what(), code, message };
        self.must_be_there(what)?;
        let whole = async {
            let mut grpc = self.channel();
            grpc.ready().await.map_err(|error| failed(tonic::Code::Unavailable, chain(&error)))?;
            let path = method_path(service, method);
            let answer = grpc.unary(tonic::Request::new(request), path, ProstCodec::default()).await;
            answer.map_err(|status| failed(status.code(), status.message().to_owned()))
        };
        let answer = tokio::time::timeout(self.limit, whole).await.unwrap_or_else(|_| {
            let text = format!("no answer within {:.0} s", self.limit.as_secs_f64());
            Err(failed(tonic::Code::DeadlineExceeded, text))
        });
        if answer.as_ref().is_err_and(|error| !error.is_answer()) {
            self.next_member();
        }
        answer.map(tonic::Response::into_inner)
    }
}

impl From<wire::KeyValue> for KeyValue {
    fn from(kv: wire::KeyValue) -> KeyValue {
        KeyValue {
            key: String::from_utf8_lossy(&kv.key).into_owned(),
            value: kv.value,
            create_rev: kv.create_revision,
            mod_rev: kv.mod_revision,
            version: kv.version,
            lease: kv.lease,
        }
    }
}

fn range_of(prefix: &str) -> (Vec<u8>, Vec<u8>) {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return (prefix.into(), end);
        }
    }
    // The prefix is empty or has only 0xff bytes: up to the end of the key space.
    let key = if prefix.is_empty() { b"\0".to_vec() } else { prefix.into() };
    (key, b"\0".to_vec())
}

pub(crate) fn method_path(service: &str, method: &str) -> PathAndQuery {
    PathAndQuery::try_from(format!("/etcdserverpb.{service}/{method}")).expect("service and method are plain words")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_becomes_the_range_of_its_keys() {
        assert_eq!(range_of("/a/"), (b"/a/".to_vec(), b"/a0".to_vec()));
        assert_eq!(range_of(""), (b"\0".to_vec(), b"\0".to_vec()));
    }
}
