//! A connection to the apiserver with nothing in between but TLS, for checks that look at the bytes on the wire.

use anyhow::{Context, anyhow};
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tower::ServiceExt;

use suite::api::{Identity, Request, chain};
use suite::check::CheckError;
use suite::ctx::Ctx;

/// Both directions of a connection over which a request has been sent.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Wire for S {}

/// Connects and sends the head of a GET over HTTP/1.1, with `more` header lines, each with its line end.
pub(crate) async fn connect(ctx: &Ctx, what: &Request, more: &str) -> Result<Box<dyn Wire>, CheckError> {
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
        Ok(stream) => Ok(Box::new(stream?)),
        Err(_) => Err(CheckError::TimedOut { what: format!("the connection for {what}") }),
    }
}
