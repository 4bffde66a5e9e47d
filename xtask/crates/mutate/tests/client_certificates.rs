//! Both proxies serve only clients that show a certificate of the run's CA, answer for a server that does not listen, and ask
//! for streams that their filters can read.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, RETRY_AFTER};
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use model::{ProfileInfo, StoreInfo, TlsFiles};
use mutate::{Change, Proxy, StoreChange, StoreProxy};
use rcgen::{CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tls::{Alpn, ClientConfig};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The headers in which the upstream server reports the credentials of a request, and the encodings that it accepts.
const SEEN: &str = "x-seen";
const ACCEPTED: &str = "x-accepted";

/// The run's PEM files, the certificate of a foreign CA, and an upstream server.
struct Rig {
    runtime: Runtime,
    folder: PathBuf,
    upstream: String,
}

impl Rig {
    fn new(name: &str) -> Rig {
        tls::install();
        let folder = std::env::temp_dir().join(format!("mutate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (ca, members) in [("run", ["server", "admin"].as_slice()), ("foreign", &["foreigner"])] {
            issue(&folder, ca, members);
        }
        let runtime = Runtime::new().unwrap();
        let port = runtime.block_on(serve(server_config(&folder)));
        Rig { runtime, folder, upstream: format!("https://127.0.0.1:{port}") }
    }

    /// The certificate `member` of a client that trusts the run's CA.
    fn files(&self, member: &str) -> TlsFiles {
        let file = |name: &str| self.folder.join(name);
        TlsFiles { ca: file("ca.crt"), cert: file(&format!("{member}.crt")), key: file(&format!("{member}.key")) }
    }

    fn profile(&self, token: Option<PathBuf>) -> ProfileInfo {
        ProfileInfo {
            name: "default".into(),
            apiserver: self.upstream.clone(),
            apiservers: Vec::new(),
            tls: self.files("admin"),
            token,
            client_certificate_required: false,
            kubeconfig: PathBuf::new(),
            prefix: "/registry".into(),
            stores: Vec::new(),
            flags: Default::default(),
            variants: Default::default(),
            dir: PathBuf::new(),
        }
    }

    fn store(&self) -> StoreInfo {
        StoreInfo {
            name: "main".into(),
            endpoint: self.upstream.clone(),
            members: Vec::new(),
            tls: self.files("admin"),
            resources: Vec::new(),
            kind: model::StoreKind::Etcd,
            programs: Vec::new(),
        }
    }

    /// The upstream server's report on a request through a proxy: `certificates=N authorization=…`.
    fn ask(&self, port: u16, config: ClientConfig) -> Result<String, String> {
        let answer = self.send(port, config, "/version")?;
        assert!(answer.status().is_success(), "{answer:?}");
        Ok(answer.headers()[SEEN].to_str().unwrap().to_owned())
    }

    /// The answer to a request through a proxy.
    fn send(&self, port: u16, config: ClientConfig, target: &str) -> Result<Response<Incoming>, String> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only()
            .enable_http2()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build::<_, Full<Bytes>>(connector);
        let request = Request::get(format!("https://127.0.0.1:{port}{target}"))
            .header(AUTHORIZATION, "Bearer client")
            .header(ACCEPT_ENCODING, "gzip")
            .body(Full::default())
            .unwrap();
        self.runtime.block_on(client.request(request)).map_err(|error| format!("{error:?}"))
    }

    /// The TLS alert with which a proxy closes a connection. The client sends no request, because the reset after a
    /// request could discard the alert.
    fn refusal(&self, port: u16, config: ClientConfig) -> String {
        let talk = async {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
            let name = ServerName::from(IpAddr::from(Ipv4Addr::LOCALHOST));
            let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
            stream.read_u8().await
        };
        match self.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(10), talk).await }) {
            Err(_) => "the proxy keeps the connection open".to_owned(),
            Ok(Err(error)) => format!("{error:?}"),
            Ok(Ok(_)) => "the proxy sends data".to_owned(),
        }
    }

    fn assert_only_the_run_is_served(&self, port: u16, expected: &str) {
        let anonymous = self.refusal(port, tls::without_certificate(&self.files("admin").ca, Alpn::Http2).unwrap());
        assert!(anonymous.contains("CertificateRequired"), "a client without a certificate: {anonymous}");
        let foreign = self.refusal(port, tls::client(&self.files("foreigner"), Alpn::Http2).unwrap());
        assert!(foreign.contains("UnknownCA"), "a client with a certificate of another CA: {foreign}");
        let own = self.ask(port, tls::client(&self.files("admin"), Alpn::Unset).unwrap());
        assert_eq!(own.as_deref(), Ok(expected));
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Creates a CA and certificates that it signs. The run's CA is `ca.crt`.
fn issue(folder: &Path, ca: &str, members: &[&str]) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("{ca} CA"));
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    if ca == "run" {
        std::fs::write(folder.join("ca.crt"), issuer.pem()).unwrap();
    }
    for member in members {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(folder.join(format!("{member}.crt")), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        std::fs::write(folder.join(format!("{member}.key")), key.serialize_pem()).unwrap();
    }
}

/// The server asks for a client certificate and serves clients without one, as kube-apiserver does.
fn server_config(folder: &Path) -> ServerConfig {
    let pem = |name: &str| CertificateDer::from_pem_file(folder.join(name)).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(pem("ca.crt")).unwrap();
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build().unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let config = ServerConfig::builder().with_client_cert_verifier(verifier);
    let mut config = config.with_single_cert(vec![pem("server.crt")], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// Answers each request with its credentials and its encodings in headers, because the store proxy passes only gRPC bodies.
async fn serve(config: ServerConfig) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let certificates = stream.get_ref().1.peer_certificates().map_or(0, <[_]>::len);
            let service = hyper::service::service_fn(move |request: Request<_>| {
                let header =
                    |name| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
                let text = format!("certificates={certificates} authorization={}", header(AUTHORIZATION));
                let answer = Response::builder().header(SEEN, text).header(ACCEPTED, header(ACCEPT_ENCODING));
                let answer = answer.body(Full::<Bytes>::default());
                async move { answer }
            });
            tokio::spawn(async move {
                let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    port
}

fn port_of(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().parse().unwrap()
}

#[test]
fn apiserver_proxy_forwards_the_token_and_no_administrator_certificate() {
    let rig = Rig::new("proxy-token");
    let proxy = Proxy::start(&rig.profile(Some(PathBuf::from("token"))), Change::Nothing).unwrap();
    rig.assert_only_the_run_is_served(port_of(&proxy.url()), "certificates=0 authorization=Bearer client");
}

#[test]
fn apiserver_proxy_without_a_token_shows_the_administrator_certificate_for_verified_clients() {
    let rig = Rig::new("proxy-certificate");
    let proxy = Proxy::start(&rig.profile(None), Change::Nothing).unwrap();
    rig.assert_only_the_run_is_served(port_of(&proxy.url()), "certificates=1 authorization=Bearer client");
}

#[test]
fn clients_may_repeat_a_request_to_an_apiserver_that_does_not_listen() {
    let mut rig = Rig::new("proxy-refused");
    let closed = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    rig.upstream = format!("https://{closed}");
    let proxy = Proxy::start(&rig.profile(None), Change::Nothing).unwrap();
    let config = tls::client(&rig.files("admin"), Alpn::Unset).unwrap();
    let answer = rig.send(port_of(&proxy.url()), config, "/version").unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()[RETRY_AFTER]), (502, &HeaderValue::from_static("1")));
}

#[test]
fn only_watches_that_a_filter_reads_lose_their_encodings() {
    let rig = Rig::new("proxy-encodings");
    let filter: fn() -> Change = || Change::Events(Box::new(|_| Some(Box::new(|event| vec![event]))));
    let nothing: fn() -> Change = || Change::Nothing;
    for (change, target, accepted) in
        [(filter, "/x?watch=true", ""), (filter, "/x?limit=2", "gzip"), (nothing, "/x?watch=true", "gzip")]
    {
        let proxy = Proxy::start(&rig.profile(None), change()).unwrap();
        let config = tls::client(&rig.files("admin"), Alpn::Unset).unwrap();
        let answer = rig.send(port_of(&proxy.url()), config, target).unwrap();
        assert_eq!(answer.headers()[ACCEPTED], accepted, "{target}");
    }
}

#[test]
fn store_proxy_serves_only_verified_clients() {
    let rig = Rig::new("store-proxy");
    let proxy = StoreProxy::start(&rig.store(), StoreChange::default()).unwrap();
    rig.assert_only_the_run_is_served(proxy.port(), "certificates=1 authorization=Bearer client");
}
