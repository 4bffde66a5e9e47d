//! Plain data that crosses stages: targets, artifacts, a running cluster, recorded history, events, outcomes.
//!
//! This crate reads no file, opens no socket and starts no process. A stage crate depends on this crate and on `sys`,
//! and never on another stage crate; so everything that two stages share is defined here.

mod answer;
mod artifact;
mod capabilities;
mod cluster;
mod durations;
mod earlier;
mod event;
mod exit;
mod expectation;
mod follow;
mod golden;
mod hardware;
mod heads;
pub mod history;
mod image;
mod kind;
mod machine;
mod matrix;
mod node;
mod outcome;
mod regression;
mod requests;
mod resource;
mod runners;
mod secret;
mod store;
mod target;
mod toolchain;
mod upstream;

pub use answer::RecordedAnswer;
pub use artifact::{Artifact, Artifacts, BuildStep, Native, Source};
pub use capabilities::Capabilities;
pub use cluster::{
    Action, Cluster, ClusterInfo, Control, ControlError, External, NodeInfo, ProfileInfo, StoreInfo, TlsFiles,
    VariantInfo,
};
pub use durations::Durations;
pub use earlier::{EARLIER_MINORS, component_of, earlier_name};
pub use event::{CiJob, Event, RunInfo, Timestamp};
pub use exit::Exit;
pub use expectation::{Circumstances, Expectation, ExpectedDifference};
pub use golden::GoldenValue;
pub use hardware::{EmulatorThreads, Hardware, InstructionEmulator};
pub use heads::{Head, Upstreams};
pub use image::{ForeignPlatform, ImageFile, ImageOrder, ImageRecipe, Images, NoProcessor};
pub use kind::NodeImage;
pub use machine::{
    LostTimers, Machine, MachineFiles, MachineInfo, MaskedValue, Memory, PackageUsed, Qemu, SystemEmulator,
};
pub use matrix::{CacheSizes, Ci, MatrixData, Mode, NativeJob, Owner, Quick, Runner, Way};
pub use node::{Identity, Node, NodeCondition, NodeDisk, NodeObject, NodeProcess};
pub use outcome::{Level, Outcome};
pub use regression::{Regression, Tried};
pub use requests::{FieldKind, FormField, RequestData, RequestForm};
pub use resource::{Resource, StorageTable, StoredResource};
pub use runners::{Agent, Cloud, Download, MachineSpec, Prepared, Provider, RunnerData, ServerShape, Size};
pub use secret::Secret;
pub use store::StoreKind;
pub use target::{
    ByteOrder, Component, ComponentGroup, ComponentSet, Components, ElfFacts, Emulator, Extension, Harness, Held,
    HostGo, Processors, Profile, ProfilePlugin, ProfileStore, Release, StoreWrapper, Target, Variant, is_minor,
    is_own_program, minor_of, names_arch,
};
pub use toolchain::{ToolchainDefect, Toolchains};
pub use upstream::{Upstream, UpstreamNeed};
