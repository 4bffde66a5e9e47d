//! One TLS provider in the process: kube's client built before reqwest's. The other order is a test of its own, because a
//! provider is chosen once per process; with two of them rustls panics at the first client.

mod pem;

#[test]
fn kube_then_reqwest() {
    tls::install();
    let (dir, files) = pem::files("kube-first");
    pem::build_kube(&files);
    pem::build_reqwest(&files);
    std::fs::remove_dir_all(dir).unwrap();
}
