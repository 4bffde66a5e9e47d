//! Which signatures count: those of keys that are valid, not revoked, and bound for signing.

use pgp::composed::{
    ArmorOptions, CleartextSignedMessage, KeyType, SecretKeyParamsBuilder, SignedSecretKey, SubkeyParamsBuilder,
};
use pgp::packet::{KeyFlags, SignatureConfig, SignatureType, Subpacket, SubpacketData};
use pgp::types::{Duration, Password, SigningKey, Tag, Timestamp};
use rand::rngs::OsRng;

use super::*;

/// Creation time of the test keys.
const MADE: u32 = 1_700_000_000;
const DAY: u32 = 24 * 3600;
const TEXT: &str = "Origin: Test\n- a line with a dash\n";

/// A primary key that certifies and signs, with a subkey for signing.
fn key() -> SignedSecretKey {
    let created = Timestamp::from_secs(MADE);
    let mut subkey = SubkeyParamsBuilder::default();
    subkey.key_type(KeyType::Ed25519).can_sign(true).created_at(created);
    let mut params = SecretKeyParamsBuilder::default();
    params.key_type(KeyType::Ed25519).can_certify(true).can_sign(true).created_at(created);
    params.primary_user_id("Test <test@example.org>".into()).subkey(subkey.build().unwrap());
    let mut key = params.build().unwrap().generate(OsRng).unwrap();
    certify(&mut key, MADE, Some(0), Some(true));
    bind(&mut key, MADE, Some(0), true);
    key
}

fn config(key: &impl SigningKey, kind: SignatureType, time: u32) -> SignatureConfig {
    let mut config = SignatureConfig::from_key(OsRng, key, kind).unwrap();
    let time = SubpacketData::SignatureCreationTime(Timestamp::from_secs(time));
    config.hashed_subpackets = vec![
        Subpacket::regular(time).unwrap(),
        Subpacket::regular(SubpacketData::IssuerFingerprint(key.fingerprint())).unwrap(),
    ];
    config
}

fn add(config: &mut SignatureConfig, data: SubpacketData) {
    config.hashed_subpackets.push(Subpacket::regular(data).unwrap());
}

fn flags(sign: bool) -> SubpacketData {
    let mut flags = KeyFlags::default();
    flags.set_sign(sign);
    SubpacketData::KeyFlags(flags)
}

/// Replaces the self-signature of the user ID; `life` in days.
fn certify(key: &mut SignedSecretKey, time: u32, life: Option<u32>, sign: Option<bool>) {
    key.details.users[0].signatures.clear();
    certify_again(key, time, life, sign);
}

fn certify_again(key: &mut SignedSecretKey, time: u32, life: Option<u32>, sign: Option<bool>) {
    let mut config = config(&key.primary_key, SignatureType::CertPositive, time);
    if let Some(days) = life {
        add(&mut config, SubpacketData::KeyExpirationTime(Duration::from_secs(days * DAY)));
    }
    if let Some(sign) = sign {
        add(&mut config, flags(sign));
    }
    let primary = &key.primary_key;
    let id = &key.details.users[0].id;
    let made = config.sign_certification(primary, primary.public_key(), &Password::empty(), Tag::UserId, id).unwrap();
    key.details.users[0].signatures.push(made);
}

/// Replaces the binding signature of the subkey.
fn bind(key: &mut SignedSecretKey, time: u32, life: Option<u32>, sign: bool) {
    key.secret_subkeys[0].signatures.clear();
    bind_again(key, time, life, sign);
}

fn bind_again(key: &mut SignedSecretKey, time: u32, life: Option<u32>, sign: bool) {
    let (primary, subkey, password) = (&key.primary_key, &key.secret_subkeys[0].key, Password::empty());
    let back = config(subkey, SignatureType::KeyBinding, time);
    let back = back.sign_primary_key_binding(subkey, subkey.public_key(), &password, primary.public_key()).unwrap();
    let mut config = config(primary, SignatureType::SubkeyBinding, time);
    add(&mut config, flags(sign));
    if let Some(days) = life {
        add(&mut config, SubpacketData::KeyExpirationTime(Duration::from_secs(days * DAY)));
    }
    if sign {
        add(&mut config, SubpacketData::EmbeddedSignature(Box::new(back)));
    }
    let made = config.sign_subkey_binding(primary, primary.public_key(), &password, subkey.public_key()).unwrap();
    key.secret_subkeys[0].signatures.push(made);
}

fn revoke_key(key: &mut SignedSecretKey, time: u32) {
    let config = config(&key.primary_key, SignatureType::KeyRevocation, time);
    let made = config.sign_key(&key.primary_key, &Password::empty(), key.primary_key.public_key()).unwrap();
    key.details.revocation_signatures.push(made);
}

fn revoke_subkey(key: &mut SignedSecretKey, time: u32) {
    let (primary, subkey) = (&key.primary_key, &key.secret_subkeys[0].key);
    let config = config(primary, SignatureType::SubkeyRevocation, time);
    let password = Password::empty();
    let made = config.sign_subkey_binding(primary, primary.public_key(), &password, subkey.public_key()).unwrap();
    key.secret_subkeys[0].signatures.push(made);
}

fn revoke_user(key: &mut SignedSecretKey, time: u32) {
    let (primary, id) = (&key.primary_key, &key.details.users[0].id);
    let config = config(primary, SignatureType::CertRevocation, time);
    let made = config.sign_certification(primary, primary.public_key(), &Password::empty(), Tag::UserId, id).unwrap();
    key.details.users[0].signatures.push(made);
}

fn trusted(key: &SignedSecretKey) -> Keys {
    Keys::parse(&key.to_public_key().to_armored_string(ArmorOptions::default()).unwrap()).unwrap()
}

fn armored(message: &CleartextSignedMessage) -> String {
    message.to_armored_string(ArmorOptions::default()).unwrap()
}

fn signed_by(key: &impl SigningKey, time: u32) -> String {
    let config = config(key, SignatureType::Text, time);
    armored(&CleartextSignedMessage::new(TEXT, config, key, &Password::empty()).unwrap())
}

/// Whether a signature of the primary key and a signature of the subkey count, both made at `time`.
fn counts(key: &SignedSecretKey, time: u32) -> (bool, bool) {
    let keys = trusted(key);
    let by = |message: String| keys.signed_text(&message).is_ok_and(|text| text.trim_end() == TEXT.trim_end());
    (by(signed_by(&key.primary_key, time)), by(signed_by(&key.secret_subkeys[0].key, time)))
}

#[test]
fn signatures_older_than_the_key_are_refused_without_a_panic() {
    let mut key = key();
    certify(&mut key, MADE, Some(30), Some(true));
    let other = self::key();
    for time in [0, 1, MADE - 1] {
        assert_eq!(counts(&key, time), (false, false), "{time}");
        let error = trusted(&key).signed_text(&signed_by(&other.primary_key, time)).unwrap_err().to_string();
        assert!(error.contains("no good signature"), "{error}");
    }
    assert_eq!(counts(&key, u32::MAX), (false, false));
}

#[test]
fn signatures_made_before_a_key_expired_count() {
    let mut key = key();
    certify(&mut key, MADE, Some(30), Some(true));
    bind(&mut key, MADE, Some(10), true);
    for (day, expected) in [(0, (true, true)), (9, (true, true)), (11, (true, false)), (31, (false, false))] {
        assert_eq!(counts(&key, MADE + day * DAY), expected, "day {day}");
    }
    certify_again(&mut key, MADE + DAY, Some(60), Some(true));
    bind_again(&mut key, MADE + DAY, Some(50), true);
    assert_eq!(counts(&key, MADE + 40 * DAY), (true, true), "the newest self-signature decides");
    certify_again(&mut key, MADE + 2 * DAY, Some(20), Some(true));
    assert_eq!(counts(&key, MADE + 40 * DAY), (false, false), "a newer self-signature may shorten the lifetime");
}

#[test]
fn revoked_keys_never_count() {
    let mut subkey = key();
    revoke_subkey(&mut subkey, MADE + DAY);
    assert_eq!(counts(&subkey, MADE), (true, false), "only the subkey is revoked");
    let mut primary = key();
    revoke_key(&mut primary, MADE + DAY);
    assert_eq!(counts(&primary, MADE), (false, false), "revoking a key also revokes its subkeys");
}

#[test]
fn revoked_user_id_does_not_extend_a_key() {
    let mut key = key();
    certify(&mut key, MADE + DAY, Some(1000), Some(true));
    revoke_user(&mut key, MADE + 2 * DAY);
    assert_eq!(counts(&key, MADE + 5 * DAY), (false, false), "no self-signature is left");
    let mut direct = config(&key.primary_key, SignatureType::Key, MADE);
    add(&mut direct, flags(true));
    add(&mut direct, SubpacketData::KeyExpirationTime(Duration::from_secs(10 * DAY)));
    let direct = direct.sign_key(&key.primary_key, &Password::empty(), key.primary_key.public_key()).unwrap();
    key.details.direct_signatures.push(direct);
    assert_eq!(counts(&key, MADE + 5 * DAY), (true, true));
    assert_eq!(counts(&key, MADE + 11 * DAY), (false, false));
}

#[test]
fn only_keys_bound_for_signing_count() {
    let mut key = key();
    bind(&mut key, MADE, Some(0), false);
    assert_eq!(counts(&key, MADE + DAY), (true, false));
    bind(&mut key, MADE, Some(0), true);
    bind_again(&mut key, MADE + DAY, Some(0), false);
    assert_eq!(counts(&key, MADE + 2 * DAY), (true, false), "the newest binding decides");
    certify(&mut key, MADE, Some(0), Some(false));
    assert_eq!(counts(&key, MADE + 2 * DAY), (false, false), "a primary key that only certifies");
    certify(&mut key, MADE, Some(0), None);
    assert_eq!(counts(&key, MADE + 2 * DAY), (true, false), "a primary key without flags may sign");
}

#[test]
fn expired_signatures_and_other_kinds_of_signatures_are_refused() {
    let key = key();
    let message = |kind, life: Option<u32>| {
        let mut config = config(&key.primary_key, kind, MADE + DAY);
        if let Some(life) = life {
            add(&mut config, SubpacketData::SignatureExpirationTime(Duration::from_secs(life)));
        }
        armored(&CleartextSignedMessage::new(TEXT, config, &key.primary_key, &Password::empty()).unwrap())
    };
    let good = |message: &str| trusted(&key).signed_text(message).is_ok();
    assert!(good(&message(SignatureType::Text, None)) && good(&message(SignatureType::Text, Some(0))));
    assert!(!good(&message(SignatureType::Text, Some(DAY))));
    assert!(!good(&standalone(&key)));
}

/// A message whose signature is valid, but only over the first byte of the text.
fn standalone(key: &SignedSecretKey) -> String {
    let config = config(&key.primary_key, SignatureType::Standalone, MADE + DAY);
    let mut hasher = config.hash_alg.new_hasher().unwrap();
    hasher.update(&TEXT.as_bytes()[..1]);
    let length = config.hash_signature_data(&mut hasher).unwrap();
    hasher.update(&config.trailer(length).unwrap());
    let hash = hasher.finalize();
    let bytes = key.primary_key.sign(&Password::empty(), config.hash_alg, &hash).unwrap();
    let made = Signature::from_config(config, [hash[0], hash[1]], bytes).unwrap();
    assert!(made.verify(key.primary_key.public_key(), TEXT.as_bytes()).is_ok());
    armored(&CleartextSignedMessage::new_many(TEXT, |_| Ok(vec![made])).unwrap())
}

#[test]
fn malformed_messages_are_refused_without_a_panic() {
    let key = key();
    let (keys, good) = (trusted(&key), signed_by(&key.primary_key, MADE + DAY));
    assert!(keys.signed_text(&good).is_ok());
    for end in (0..good.len()).step_by(3) {
        assert!(keys.signed_text(&good[..end]).is_err() || good[end..].trim().is_empty(), "{end} bytes");
    }
    let at = good.find("-----BEGIN PGP SIGNATURE").unwrap();
    for at in (at..good.len()).step_by(5) {
        for byte in [b'\0', b'=', b'A'] {
            let mut bytes = good.clone().into_bytes();
            bytes[at] = byte;
            // The signature may still be the same; the text must be the same.
            let text = keys.signed_text(&String::from_utf8(bytes).unwrap());
            assert!(text.is_err() || text.unwrap().trim_end() == TEXT.trim_end(), "byte {at}");
        }
    }
}

#[test]
fn message_that_would_take_hours_to_parse_is_refused() {
    let key = key();
    let long = format!("{}{}", "a".repeat(1 << 16), "\nb".repeat(LONGEST_MESSAGE / 2));
    let error = format!("{:#}", trusted(&key).signed_text(&long).unwrap_err());
    assert!(error.contains("bytes"), "{error}");
    let lines = "\n".repeat(MOST_LINES + 1);
    let error = format!("{:#}", trusted(&key).signed_text(&lines).unwrap_err());
    assert!(error.contains("lines"), "{error}");
}
