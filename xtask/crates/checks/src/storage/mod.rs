//! What is stored, under which key and how: layout, encodings, encryption, leases, names, migration.
//!
//! The table lists the files in the order of the reports; each file holds rows and their functions.

pub(crate) mod admission;
pub(crate) mod apply;
pub(crate) mod arch;
pub(crate) mod arch_ciphertext;
pub(crate) mod arch_data_dir;
pub(crate) mod arch_identical;
pub(crate) mod arch_names;
pub(crate) mod binding;
pub(crate) mod clock;
pub(crate) mod crd;
pub(crate) mod crd_webhook;
mod crd_webhook_view;
pub(crate) mod create;
pub(crate) mod create_status;
pub(crate) mod create_table;
pub(crate) mod encoding;
pub(crate) mod encryption;
pub(crate) mod encryption_binding;
pub(crate) mod encryption_change;
pub(crate) mod encryption_kms;
pub(crate) mod encryption_matrix;
pub(crate) mod etcd;
pub(crate) mod etcd_progress;
pub(crate) mod gates;
pub(crate) mod keys;
pub(crate) mod layout;
pub(crate) mod layout_custom;
pub(crate) mod layout_flags;
pub(crate) mod layout_sweep;
pub(crate) mod layout_table;
pub(crate) mod lease_renewal;
pub(crate) mod leases;
pub(crate) mod mixed_media;
pub(crate) mod names;
pub(crate) mod namespace_delete;
pub(crate) mod number_range;
pub(crate) mod portable;
pub(crate) mod release_skew;
mod release_skew_events;
pub(crate) mod roundtrip;
pub(crate) mod served;
pub(crate) mod version_migration;

use suite::Check;

pub(crate) static TABLES: &[&[Check]] = &[
    layout::CHECKS,
    layout_table::CHECKS,
    layout_custom::CHECKS,
    layout_flags::CHECKS,
    layout_sweep::CHECKS,
    arch::CHECKS,
    arch_identical::CHECKS,
    arch_names::CHECKS,
    arch_ciphertext::CHECKS,
    arch_data_dir::CHECKS,
    number_range::CHECKS,
    encoding::CHECKS,
    roundtrip::CHECKS,
    served::CHECKS,
    mixed_media::CHECKS,
    encryption::CHECKS,
    encryption_binding::CHECKS,
    encryption_kms::CHECKS,
    encryption_matrix::CHECKS,
    encryption_change::CHECKS,
    leases::CHECKS,
    lease_renewal::CHECKS,
    create::CHECKS,
    create_status::CHECKS,
    binding::CHECKS,
    clock::CHECKS,
    names::CHECKS,
    apply::CHECKS,
    admission::CHECKS,
    crd::CHECKS,
    crd_webhook::CHECKS,
    keys::CHECKS,
    etcd::CHECKS,
    etcd_progress::CHECKS,
    gates::CHECKS,
    namespace_delete::CHECKS,
    version_migration::CHECKS,
    portable::CHECKS,
    release_skew::CHECKS,
];
