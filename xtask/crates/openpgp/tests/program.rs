//! Runs the program as the harness does: signed text and exit code 0, or a reason and exit code 1.

use std::path::Path;
use std::time::Duration;

use pgp::composed::{ArmorOptions, CleartextSignedMessage, KeyType, SecretKeyParamsBuilder, SignedSecretKey};
use pgp::types::Password;
use rand::rngs::OsRng;
use sys::Scratch;
use sys::exec::{self, ExecError, Shell, cmd};

const TEXT: &str = "Origin: Test\nCodename: test\n";

fn key() -> SignedSecretKey {
    let mut params = SecretKeyParamsBuilder::default();
    params.key_type(KeyType::Ed25519).can_certify(true).can_sign(true);
    params.primary_user_id("Test <test@example.org>".into());
    params.build().unwrap().generate(OsRng).unwrap()
}

fn public(key: &SignedSecretKey) -> String {
    key.to_public_key().to_armored_string(ArmorOptions::default()).unwrap()
}

fn signed(key: &SignedSecretKey) -> String {
    let message = CleartextSignedMessage::sign(OsRng, TEXT, &**key, &Password::empty()).unwrap();
    message.to_armored_string(ArmorOptions::default()).unwrap()
}

fn run(keys: &Path, file: &Path) -> Result<exec::Output, ExecError> {
    let shell = Shell::new().unwrap();
    let program = env!("CARGO_BIN_EXE_openpgp");
    exec::run(cmd!(shell, "{program} {keys} {file}"), Duration::from_secs(60))
}

#[test]
fn signed_text_is_printed() {
    let (folder, key) = (Scratch::temporary("good").unwrap(), key());
    let (keys, file) = (folder.write("keys.asc", public(&key)), folder.write("InRelease", signed(&key)));
    let output = run(&keys, &file).unwrap();
    assert_eq!(output.stdout.trim_end(), TEXT.trim_end());
    assert_eq!(output.stderr, "");
}

#[test]
fn refused_text_is_not_printed() {
    let (folder, key) = (Scratch::temporary("bad").unwrap(), key());
    let keys = folder.write("keys.asc", public(&key));
    for (name, content, why) in [
        ("changed", signed(&key).replace("Origin: Test", "Origin: Evil"), "no good signature"),
        ("foreign", signed(&self::key()), "trusted keys"),
        ("unsigned", TEXT.to_owned(), "not clear-signed"),
    ] {
        match run(&keys, &folder.write(name, content)) {
            Err(ExecError::Failed { status, tail, .. }) => {
                assert_eq!(status.code(), Some(1), "{name}: {tail}");
                assert!(tail.contains(why) && !tail.contains("Origin"), "{name}: {tail}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}
