//! The server and client sides of both proxies: a TLS listener on a local port, and clients of the real server.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use hyper::body::Body;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use model::TlsFiles;
use tls::ClientConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Bytes of an HTTP/2 stream that a proxy holds in each direction while its client does not read. Hyper's defaults, 2 MiB
/// and 400 KiB, would let a store send a whole range to a client that has read its first chunk.
pub(crate) const UNREAD: u32 = 65_535;

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Upstream<B> = Client<HttpsConnector<HttpConnector>, B>;

/// A listener with a separate runtime. Dropping it closes it and all its connections.
pub(crate) struct TlsListener {
    pub(crate) port: u16,
    runtime: Option<tokio::runtime::Runtime>,
}

impl TlsListener {
    /// Listens on a free port for clients with a certificate that `ca` has signed; `serve` handles each connection
    /// until its end. The server's certificate is in the folder of `ca`.
    pub(crate) fn open<F>(
        ca: &Path,
        serve: impl Fn(TlsStream<TcpStream>) -> F + Send + Sync + 'static,
    ) -> anyhow::Result<TlsListener>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tls::install();
        let (cert, key) = (ca.with_file_name("server.crt"), ca.with_file_name("server.key"));
        let acceptor = TlsAcceptor::from(Arc::new(tls::server(&TlsFiles { ca: ca.to_owned(), cert, key })?));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("failed to start the async runtime of the proxy")?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.context("failed to listen on a port for the proxy")?;
        let port = listener.local_addr().context("failed to get the address of the proxy")?.port();
        runtime.spawn(accept(listener, acceptor, Arc::new(serve)));
        Ok(TlsListener { port, runtime: Some(runtime) })
    }
}

impl Drop for TlsListener {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// If the listener fails, the suite reaches no verdict, so the mutant is not killed. Errors of a connection are
/// ignored.
async fn accept<F>(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    serve: Arc<impl Fn(TlsStream<TcpStream>) -> F + Send + Sync + 'static>,
) where
    F: Future<Output = ()> + Send + 'static,
{
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, serve) = (acceptor.clone(), Arc::clone(&serve));
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(stream).await;
            }
        });
    }
}

/// A client of the real server.
pub(crate) fn upstream<B>(tls: ClientConfig, http2: bool) -> Upstream<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Error>,
{
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
    let mut client = Client::builder(TokioExecutor::new());
    if http2 {
        client
            .http2_only(true)
            .http2_initial_stream_window_size(UNREAD)
            .build(builder.enable_http2().wrap_connector(tcp))
    } else {
        client.build(builder.enable_http1().wrap_connector(tcp))
    }
}
