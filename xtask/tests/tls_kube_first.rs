//! One TLS provider in the process: builds kube's client before reqwest's. The other order is in another test program,
//! because a provider is chosen once per process; with two providers, rustls panics at the first client.

mod pem;

#[test]
fn kube_then_reqwest() {
    tls::install();
    let (dir, files) = pem::files("kube-first");
    pem::build_kube(&files);
    pem::build_reqwest(&files);
    std::fs::remove_dir_all(dir).unwrap();
}
