//! Requests to etcd that concern its release: the version of a member's data, downgrades, and what must survive both.

use std::collections::BTreeSet;

use prost::Message;

use super::client::Store;
use super::wire;
use crate::error::StoreError;

// The actions of a DowngradeRequest (etcd api/etcdserverpb/rpc.proto).
const VALIDATE: i32 = 0;
const ENABLE: i32 = 1;

#[derive(Clone, PartialEq, Message)]
struct DowngradeRequest {
    #[prost(int32, tag = "1")]
    action: i32,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct DowngradeResponse {
    #[prost(string, tag = "2")]
    version: String,
}

/// A StatusResponse, of which only this field is read.
#[derive(Clone, PartialEq, Message)]
struct DataStatus {
    #[prost(string, tag = "11")]
    storage_version: String,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

impl Store {
    /// The version of the member's data: "3.6.0". Empty before 3.6, which does not report it.
    pub async fn data_version(&self) -> Result<String, StoreError> {
        let answer: DataStatus = self.call("Maintenance", "Status", wire::StatusRequest {}).await?;
        Ok(answer.storage_version)
    }

    /// The version of the cluster, "3.6.0" or "3.6". An error unless `target`, "3.5", is the minor before it, and while a
    /// downgrade is in progress.
    pub async fn validate_downgrade(&self, target: &str) -> Result<String, StoreError> {
        let request = DowngradeRequest { action: VALIDATE, version: target.to_owned() };
        let answer: DowngradeResponse = self.call("Maintenance", "Downgrade", request).await?;
        Ok(answer.version)
    }

    /// Begins a downgrade of the cluster to `target`. No error if one is in progress.
    pub async fn enable_downgrade(&self, target: &str) -> Result<(), StoreError> {
        let request = DowngradeRequest { action: ENABLE, version: target.to_owned() };
        match self.call::<_, DowngradeResponse>("Maintenance", "Downgrade", request).await {
            Err(error) if error.message.contains("downgrade job in progress") => Ok(()),
            other => other.map(drop),
        }
    }

    /// The ids of all members, as this member knows them.
    pub async fn member_ids(&self) -> Result<BTreeSet<u64>, StoreError> {
        let list: wire::MemberListResponse = self.call("Cluster", "MemberList", wire::MemberListRequest {}).await?;
        Ok(list.members.into_iter().map(|member| member.id).collect())
    }

    /// Writes a key with a new lease; returns the lease.
    pub async fn put_leased(&self, key: &str, value: &[u8], seconds: u32) -> Result<i64, StoreError> {
        let request = LeaseGrantRequest { ttl: seconds.into() };
        let lease = self.call::<_, LeaseGrantResponse>("Lease", "LeaseGrant", request).await?.id;
        let request = wire::PutRequest { key: key.into(), value: value.to_vec(), lease };
        self.call::<_, wire::HeaderOnly>("KV", "Put", request).await?;
        Ok(lease)
    }
}
