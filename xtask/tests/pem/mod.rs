//! PEM files for tests that build TLS clients without a connection.

use std::path::PathBuf;

use model::{ProfileInfo, TlsFiles};

/// Files of a self-signed client in a new folder below the system's temporary folder.
pub(crate) fn files(name: &str) -> (PathBuf, TlsFiles) {
    let dir = std::env::temp_dir().join(format!("archproof-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let write = |file: &str, text: String| {
        let path = dir.join(file);
        std::fs::write(&path, text).unwrap();
        path
    };
    let cert = write("tls.crt", made.cert.pem());
    let files = TlsFiles { ca: cert.clone(), cert, key: write("tls.key", made.signing_key.serialize_pem()) };
    (dir, files)
}

/// A profile with enough data to build the suite's clients.
pub(crate) fn profile(tls: &TlsFiles) -> ProfileInfo {
    ProfileInfo {
        name: "default".into(),
        apiserver: "https://127.0.0.1:1".into(),
        apiservers: Vec::new(),
        tls: tls.clone(),
        token: None,
        client_certificate_required: false,
        kubeconfig: PathBuf::new(),
        prefix: "/registry".into(),
        stores: Vec::new(),
        flags: Default::default(),
        variants: Default::default(),
        dir: PathBuf::new(),
    }
}

/// The client of the boot stage, and a client that uses the process's default provider.
pub(crate) fn build_reqwest(tls: &TlsFiles) {
    let config = tls::client(tls, tls::Alpn::Unset).unwrap();
    reqwest::blocking::Client::builder().tls_backend_preconfigured(config).build().unwrap();
    reqwest::blocking::Client::builder().build().unwrap();
}

/// The clients of the suite.
pub(crate) fn build_kube(tls: &TlsFiles) {
    use suite::api::{Api, Transport};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    for transport in [Transport::Http1, Transport::Http2] {
        Api::new(&profile(tls), transport, std::time::Duration::from_secs(1)).unwrap();
    }
}
