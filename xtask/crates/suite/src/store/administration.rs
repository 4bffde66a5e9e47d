//! Requests of an administrator to etcd: its alarms, its members, the release and size of one member, and downgrades.

use std::collections::BTreeSet;

use super::client::Store;
use super::wire;
use crate::error::StoreError;

/// An active alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The id of the member that the alarm names; 0 if it names none.
    pub member: u64,
    pub kind: AlarmKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmKind {
    NoSpace,
    Corrupt,
    Other(i32),
}

/// The state of one member, from its Status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberState {
    pub id: u64,
    /// "3.7.3".
    pub version: String,
    /// The version of its data: "3.6.0". Empty before 3.6, which does not report it.
    pub data_version: String,
    /// The bytes of its database, as it compares them with its quota.
    pub db_size: i64,
}

impl Store {
    /// All active alarms of all members.
    pub async fn alarms(&self) -> Result<Vec<Alarm>, StoreError> {
        let list: wire::AlarmResponse = self.call("Maintenance", "Alarm", wire::AlarmRequest::default()).await?;
        Ok(list.alarms.into_iter().map(Alarm::from).collect())
    }

    /// Clears an alarm. No error if it is not active.
    pub async fn disarm(&self, alarm: Alarm) -> Result<(), StoreError> {
        let request =
            wire::AlarmRequest { action: wire::DEACTIVATE, member_id: alarm.member, alarm: alarm.kind.number() };
        self.call::<_, wire::AlarmResponse>("Maintenance", "Alarm", request).await.map(drop)
    }

    /// Clears the alarms of all members.
    pub async fn disarm_alarms(&self) -> Result<(), StoreError> {
        for alarm in self.alarms().await? {
            self.disarm(alarm).await?;
        }
        Ok(())
    }

    pub async fn state(&self) -> Result<MemberState, StoreError> {
        let answer: wire::StatusResponse = self.call("Maintenance", "Status", wire::StatusRequest {}).await?;
        let id = answer.header.map_or(0, |header| header.member_id);
        let (version, data_version) = (answer.version, answer.storage_version);
        Ok(MemberState { id, version, data_version, db_size: answer.db_size })
    }

    /// The URLs at which other members reach this member; empty if it is not a member.
    pub async fn peer_urls(&self, member: u64) -> Result<Vec<String>, StoreError> {
        let found = self.member_list().await?.into_iter().find(|other| other.id == member);
        Ok(found.map_or_else(Vec::new, |member| member.peer_urls))
    }

    /// The ids of all members, as this member knows them.
    pub async fn member_ids(&self) -> Result<BTreeSet<u64>, StoreError> {
        Ok(self.member_list().await?.into_iter().map(|member| member.id).collect())
    }

    async fn member_list(&self) -> Result<Vec<wire::Member>, StoreError> {
        let list: wire::MemberListResponse = self.call("Cluster", "MemberList", wire::MemberListRequest {}).await?;
        Ok(list.members)
    }

    /// Removes a member. No error if it is not a member.
    pub async fn remove_member(&self, id: u64) -> Result<(), StoreError> {
        let removed: Result<wire::HeaderOnly, _> =
            self.call("Cluster", "MemberRemove", wire::MemberRemoveRequest { id }).await;
        unless_said(removed, "member not found")
    }

    /// Adds a member that is started afterwards. No error if there is a member with these URLs.
    pub async fn add_member(&self, peer_urls: Vec<String>) -> Result<(), StoreError> {
        let added: Result<wire::HeaderOnly, _> =
            self.call("Cluster", "MemberAdd", wire::MemberAddRequest { peer_urls }).await;
        unless_said(added, "Peer URLs already exists")
    }

    /// The version of the cluster, "3.6.0" or "3.6". An error unless `target`, "3.5", is the minor before it, and while a
    /// downgrade is in progress.
    pub async fn validate_downgrade(&self, target: &str) -> Result<String, StoreError> {
        let request = wire::DowngradeRequest { action: wire::VALIDATE, version: target.to_owned() };
        let answer: wire::DowngradeResponse = self.call("Maintenance", "Downgrade", request).await?;
        Ok(answer.version)
    }

    /// Begins a downgrade of the cluster to `target`. No error if one is in progress.
    pub async fn enable_downgrade(&self, target: &str) -> Result<(), StoreError> {
        let request = wire::DowngradeRequest { action: wire::ENABLE, version: target.to_owned() };
        let begun = self.call::<_, wire::DowngradeResponse>("Maintenance", "Downgrade", request).await;
        unless_said(begun, "downgrade job in progress")
    }
}

/// The result of a request that may be the second one for the same change.
fn unless_said<T>(answer: Result<T, StoreError>, text: &str) -> Result<(), StoreError> {
    match answer {
        Err(error) if error.message.contains(text) => Ok(()),
        other => other.map(drop),
    }
}

impl AlarmKind {
    /// The number in etcd's `AlarmType`.
    fn number(self) -> i32 {
        match self {
            AlarmKind::NoSpace => 1,
            AlarmKind::Corrupt => 2,
            AlarmKind::Other(number) => number,
        }
    }
}

impl From<wire::AlarmMember> for Alarm {
    fn from(alarm: wire::AlarmMember) -> Alarm {
        let known = [AlarmKind::NoSpace, AlarmKind::Corrupt];
        let kind = known.into_iter().find(|kind| kind.number() == alarm.alarm);
        Alarm { member: alarm.member_id, kind: kind.unwrap_or(AlarmKind::Other(alarm.alarm)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_alarms_have_the_numbers_of_etcd() {
        for (number, kind) in [(1, AlarmKind::NoSpace), (2, AlarmKind::Corrupt), (7, AlarmKind::Other(7))] {
            let alarm = Alarm::from(wire::AlarmMember { member_id: 9, alarm: number });
            assert_eq!((alarm, kind.number()), (Alarm { member: 9, kind }, number));
        }
    }

    #[test]
    fn repeated_change_of_members_is_no_error() {
        let refused = |message: &str| -> Result<(), StoreError> {
            let (what, code) = ("etcd Cluster/MemberAdd".to_owned(), tonic::Code::FailedPrecondition);
            Err(StoreError { what, code, message: message.to_owned() })
        };
        assert!(unless_said(Ok(()), "already").is_ok());
        assert!(unless_said(refused("etcdserver: Peer URLs already exists"), "already exists").is_ok());
        assert!(unless_said(refused("etcdserver: unhealthy cluster"), "already exists").is_err());
    }
}
