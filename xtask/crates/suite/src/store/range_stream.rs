//! A Range that the store answers as a stream of chunks, and the same Range as one answer.

use std::time::Duration;

use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::client::{KeyValue, Store, method_path};
use super::wire;
use crate::api::chain;
use crate::error::StoreError;

/// The answer to a Range, or one chunk of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeAnswer {
    pub kvs: Vec<KeyValue>,
    /// The revision in the header; 0 without a header.
    pub revision: i64,
    /// Whether the range has more keys than the limit.
    pub more: bool,
    /// The number of keys in the range, regardless of the limit.
    pub count: i64,
}

/// An open stream of chunks. The store sends a chunk when the caller has read most of those before it.
pub struct RangeStream {
    chunks: Streaming<wire::RangeStreamResponse>,
    limit: Duration,
}

impl Store {
    /// Up to `limit` keys (0: all) that begin with `prefix`, at `revision` (0: now), as one answer.
    pub async fn range_once(&self, prefix: &str, revision: i64, limit: i64) -> Result<RangeAnswer, StoreError> {
        let answer: wire::RangeResponse = self.call("KV", "Range", self.range_request(prefix, revision, limit)).await?;
        Ok(answer.into())
    }

    /// Like [`Store::range_once`], as a stream of chunks.
    pub async fn range_stream(&self, prefix: &str, revision: i64, limit: i64) -> Result<RangeStream, StoreError> {
        self.must_be_there(what)?;
        let request = Request::new(self.range_request(prefix, revision, limit));
        let opened = async {
            let mut grpc = self.channel();
            grpc.ready().await.map_err(|error| Status::unavailable(chain(&error)))?;
            let codec = ProstCodec::<wire::RangeRequest, wire::RangeStreamResponse>::default();
            Ok(grpc.server_streaming(request, method_path("KV", "RangeStream"), codec).await?.into_inner())
        };
        let chunks = in_time(self.limit(), opened).await?;
        Ok(RangeStream { chunks, limit: self.limit() })
    }

    fn range_request(&self, prefix: &str, revision: i64, limit: i64) -> wire::RangeRequest {
        let (key, range_end) = self.range_of(prefix);
        wire::RangeRequest { key, range_end, limit, revision, keys_only: false }
    }
}

impl RangeStream {
    /// The next chunk; None at the end of a complete stream.
    pub async fn next(&mut self) -> Result<Option<RangeAnswer>, StoreError> {
        let chunk = in_time(self.limit, self.chunks.message()).await?;
        Ok(chunk.map(|chunk| chunk.range_response.unwrap_or_default().into()))
    }
}

async fn in_time<T>(limit: Duration, answer: impl Future<Output = Result<T, Status>>) -> Result<T, StoreError> {
    let late = |_| Err(Status::new(Code::DeadlineExceeded, format!("no answer within {:.0} s", limit.as_secs_f64())));
    let answer = tokio::time::timeout(limit, answer).await.unwrap_or_else(late);
    answer.map_err(|status| StoreError { what: what(), code: status.code(), message: status.message().to_owned() })
}

fn what() -> String {
    "etcd KV/RangeStream".to_owned()
}

impl From<wire::RangeResponse> for RangeAnswer {
    fn from(answer: wire::RangeResponse) -> RangeAnswer {
        RangeAnswer {
            kvs: answer.kvs.into_iter().map(KeyValue::from).collect(),
            revision: answer.header.map_or(0, |header| header.revision),
            more: answer.more,
            count: answer.count,
        }
    }
}
