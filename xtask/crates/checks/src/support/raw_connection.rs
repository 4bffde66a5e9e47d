//! A connection to the apiserver with nothing in between but TLS, for checks that look at the bytes on the wire.

use anyhow::{Context, anyhow};
use bytes::BytesMut;
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tower::ServiceExt;

use suite::api::{Identity, Request, chain};
use suite::prelude::*;

/// Both directions of a connection over which a request has been sent.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Wire for S {}

/// A connection, and the received bytes that are not read yet.
pub(crate) struct Connection {
    pub(crate) buffer: BytesMut,
    /// The request.
    pub(crate) what: String,
    stream: Box<dyn Wire>,
}

impl Connection {
    /// Appends received bytes to the buffer; returns their number, 0 at the end of the connection.
    pub(crate) async fn read(&mut self) -> std::io::Result<usize> {
        self.buffer.reserve(8192);
        self.stream.read_buf(&mut self.buffer).await
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Removes the head of the answer, up to and including the empty line, when it is complete.
    pub(crate) fn take_head(&mut self) -> Option<String> {
        let end = self.buffer.windows(4).position(|window| window == b"\r\n\r\n")?;
        Some(String::from_utf8_lossy(&self.buffer.split_to(end + 4)).into_owned())
    }
}

/// Connects and sends the head of a GET over HTTP/1.1, with `more` header lines, each with its line end.
pub(crate) async fn connect(ctx: &Ctx, what: &Request, more: &str) -> Verdict<Connection> {
    let server: Uri = ctx.profile().apiserver.parse().context("the apiserver's address is not a URI")?;
    let host = server.authority().context("the apiserver's address has no host")?.to_string();
    let identity = Identity::of(ctx.profile())?;
    let authorization = identity.authorization.map(|value| format!("Authorization: {value}\r\n")).unwrap_or_default();
    let connector =
        hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(identity.tls).https_only().enable_http1().build();
    let text = format!(
        "GET {}?{} HTTP/1.1\r\nHost: {host}\r\nAccept: {}\r\nUser-Agent: archproof\r\n{authorization}{more}\r\n",
        what.path, what.query, what.accept
    );
    let connect = async {
        let stream = connector.oneshot(server).await.map_err(|error| anyhow!("{}", chain(&*error)))?;
        let mut stream = TokioIo::new(stream);
        stream.write_all(text.as_bytes()).await?;
        stream.flush().await?;
        anyhow::Ok(stream)
    };
    match tokio::time::timeout(ctx.answer_limit(), connect).await {
        Ok(stream) => Ok(Connection { buffer: BytesMut::new(), what: what.to_string(), stream: Box::new(stream?) }),
        Err(_) => Err(CheckError::TimedOut { what: format!("the connection for {what}") }),
    }
}
