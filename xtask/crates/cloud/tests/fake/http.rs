//! A minimal HTTP server for the fakes of this crate and of `runner`: one request per connection, one thread per connection.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use reqwest::Url;
use serde_json::Value;

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path without the query, encoded.
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    /// Names are in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// Close the connection without an answer.
    pub(crate) silent: bool,
}

impl Reply {
    pub(crate) fn new(status: u16, body: Value) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        Reply { status, headers: Vec::new(), body, silent: false }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.into(), value.into()));
        self
    }
}

impl Request {
    /// `GET /compute/v2.1/servers`.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Serves on a free port until the process ends; returns `http://127.0.0.1:PORT`.
pub(crate) fn serve(handle: impl Fn(&Request) -> Reply + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let handle = handle.clone();
            std::thread::spawn(move || answer(stream, &handle));
        }
    });
    address
}

// A client that disconnects early is not an error of the server.
fn answer(mut stream: TcpStream, handle: &impl Fn(&Request) -> Reply) {
    let Some(request) = read(&stream) else { return };
    let Reply { status, headers, body, silent } = handle(&request);
    if !silent {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\n");
        let _ = write!(stream, "{head}{headers}content-length: {}\r\n\r\n{body}", body.len());
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let url = Url::parse(&format!("http://fake{target}")).ok()?;
    Some(Request {
        method,
        path: url.path().to_owned(),
        query: url.query_pairs().into_owned().collect(),
        headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}
