//! One TLS provider in the process: builds reqwest's client before kube's. The other order is in another test program,
//! because a provider is chosen once per process; with two providers, rustls panics at the first client.

mod pem;

#[test]
fn reqwest_then_kube() {
    tls::install();
    let (dir, files) = pem::files("reqwest-first");
    pem::build_reqwest(&files);
    pem::build_kube(&files);
    std::fs::remove_dir_all(dir).unwrap();
}
