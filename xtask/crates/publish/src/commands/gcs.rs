//! `cargo xtask report gcs`: uploads a run to a bucket through the JSON API of Google Cloud Storage.
//!
//! It uploads one object after the other, in the order of `prow`, and stops at the first failure. So
//! `finished.json` exists only if everything before it does. Objects of a build are never replaced. An upload that broke
//! off can be repeated: objects that exist with the same content are left as they are.
//! <https://cloud.google.com/storage/docs/uploading-objects>

use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use cli::{Failure, OrExit, Paths, print};
use model::{Exit, Secret};
use reqwest::blocking::{Client, RequestBuilder, Response};
use reqwest::{StatusCode, Url};
use sys::{deadline, interrupt, progress};

use super::prow;
use crate::args::GcsOptions;
use crate::prow::Object;

/// Deadline for one object.
const LIMIT: Duration = Duration::from_secs(120);
const ATTEMPTS: u32 = 4;
/// Pause before the second attempt; it doubles before each further one.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest part of a response to show.
const ANSWER_CHARS: usize = 300;

pub(super) fn run(paths: &Paths, options: &GcsOptions) -> Result<Exit, Failure> {
    let Some(bucket) = &options.job.bucket else {
        return Err(Failure::usage(anyhow::anyhow!("no destination: give --bucket gs://BUCKET")));
    };
    let (bucket, prefix) =
        bucket.split_once('/').map_or((bucket.as_str(), String::new()), |(b, p)| (b, format!("{p}/")));
    let endpoint = endpoint(&options.endpoint, options.token.is_some() || options.dry_run).or_exit(Exit::Usage)?;
    let objects = prow::objects(paths, &options.run, &options.job).or_exit(Exit::Usage)?;
    if options.dry_run {
        for object in &objects {
            print(&format!(
                "{:>10}  gs://{bucket}/{prefix}{}  {}\n",
                object.bytes.len(),
                object.name,
                object.content_type
            ));
        }
        return Ok(Exit::Ok);
    }
    let target = Target { client: client(&endpoint)?, endpoint, bucket, prefix, token: options.token.as_ref() };
    for object in &objects {
        target.put(object).or_exit(Exit::Infrastructure)?;
    }
    progress::say(&format!("{} objects in gs://{bucket}/{}", objects.len(), target.prefix));
    Ok(Exit::Ok)
}

struct Target<'a> {
    client: Client,
    endpoint: Url,
    bucket: &'a str,
    /// Ends with a slash, or is empty.
    prefix: String,
    token: Option<&'a Secret>,
}

/// The result of one attempt.
enum Answer {
    Done,
    /// The bucket has an object of this name.
    Exists,
    /// The next attempt may succeed.
    Passing(String),
    Refused(String),
}

impl Target<'_> {
    fn put(&self, object: &Object) -> anyhow::Result<()> {
        let name = format!("{}{}", self.prefix, object.name);
        let mut last = String::new();
        for attempt in 0..ATTEMPTS {
            interrupt::check()?;
            if attempt > 0 {
                deadline::pause(PAUSE * (1 << (attempt - 1)));
            }
            match self.attempt(object, &name)? {
                Answer::Done => return Ok(()),
                // An earlier attempt uploaded it, but its response was lost. Or an earlier upload broke off.
                Answer::Exists if attempt > 0 || self.has(object, &name) => return Ok(()),
                Answer::Exists => bail!(
                    "gs://{}/{name} was refused: this build exists already; if its upload broke off, delete its \
                     objects, and repeat the command",
                    self.bucket
                ),
                Answer::Passing(why) => last = why,
                Answer::Refused(why) => bail!("gs://{}/{name} was refused: {why}", self.bucket),
            }
        }
        bail!("gs://{}/{name} could not be uploaded in {ATTEMPTS} attempts: {last}", self.bucket)
    }

    fn attempt(&self, object: &Object, name: &str) -> anyhow::Result<Answer> {
        let mut url = self.endpoint.join(&format!("upload/storage/v1/b/{}/o", self.bucket))?;
        url.query_pairs_mut().append_pair("uploadType", "media").append_pair("name", name);
        if !object.pointer {
            // Only if the object does not exist: the objects of a build are written once.
            url.query_pairs_mut().append_pair("ifGenerationMatch", "0");
        }
        let request = self.client.post(url).header("content-type", object.content_type).body(object.bytes.clone());
        match self.authorized(request).send() {
            Ok(response) => Ok(answer(response, object)),
            Err(error) => Ok(Answer::Passing(format!("{:#}", anyhow::Error::new(error.without_url())))),
        }
    }

    /// Whether the bucket has this object with this content. False if the token may only create objects.
    fn has(&self, object: &Object, name: &str) -> bool {
        let Ok(mut url) = self.endpoint.join(&format!("storage/v1/b/{}/o", self.bucket)) else { return false };
        // The slashes of the name are encoded.
        let Ok(mut segments) = url.path_segments_mut() else { return false };
        segments.push(name);
        drop(segments);
        url.query_pairs_mut().append_pair("alt", "media");
        let Ok(response) = self.authorized(self.client.get(url)).send() else { return false };
        let is_there = response.status() == StatusCode::OK;
        let mut found = Vec::new();
        let read = response.take(object.bytes.len() as u64 + 1).read_to_end(&mut found);
        is_there && read.is_ok() && found == object.bytes
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        match self.token.map(Secret::expose) {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }
}

fn answer(response: Response, object: &Object) -> Answer {
    let status = response.status();
    let text = response.text().unwrap_or_default();
    let said =
        || format!("{status}: {}", text.chars().take(ANSWER_CHARS).collect::<String>().replace(char::is_control, " "));
    match status {
        StatusCode::OK => stored(&text, object),
        StatusCode::PRECONDITION_FAILED => Answer::Exists,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Answer::Passing(said()),
        _ if status.is_server_error() => Answer::Passing(said()),
        _ => Answer::Refused(said()),
    }
}

/// Checks that the response reports the size that was sent. Numbers are strings in this API.
fn stored(text: &str, object: &Object) -> Answer {
    let described: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let size = described.as_ref().and_then(|value| value["size"].as_str()).and_then(|size| size.parse().ok());
    if size == Some(object.bytes.len()) {
        return Answer::Done;
    }
    Answer::Refused(format!("the response does not confirm that {} bytes were stored", object.bytes.len()))
}

fn client(endpoint: &Url) -> anyhow::Result<Client> {
    let builder = Client::builder().user_agent("archproof").timeout(LIMIT).redirect(reqwest::redirect::Policy::none());
    // Connections to this machine must not use a proxy.
    let builder = if endpoint.scheme() == "http" { builder.no_proxy().tls_certs_only([]) } else { builder };
    builder.build().context("failed to set up the HTTP client")
}

/// Adds a trailing slash. Refuses a token over plain http, and https without a token, which no bucket accepts.
fn endpoint(text: &str, has_token: bool) -> anyhow::Result<Url> {
    let url =
        Url::parse(&format!("{}/", text.trim_end_matches('/'))).with_context(|| format!("`{text}` is not a URL"))?;
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    let is_here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    match url.scheme() {
        "https" if has_token => Ok(url),
        "https" => bail!("no token: set GOOGLE_OAUTH_ACCESS_TOKEN"),
        "http" if is_here => Ok(url),
        _ => bail!("`{text}` is not https; plain http is allowed only for this machine"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_allowed_only_for_this_machine() {
        for good in ["http://127.0.0.1:4443", "http://[::1]:1/", "http://localhost:1", "https://storage.googleapis.com"]
        {
            assert!(endpoint(good, true).unwrap().as_str().ends_with('/'), "{good}");
        }
        for bad in
            ["http://storage.googleapis.com", "http://127.0.0.1.example.org", "ftp://127.0.0.1", "x", "http://10.0.0.1"]
        {
            assert!(endpoint(bad, true).is_err(), "{bad}");
        }
        assert!(endpoint("https://storage.googleapis.com", false).is_err());
        assert_eq!(format!("{:?}", Secret::new("secret")), "***");
    }
}
