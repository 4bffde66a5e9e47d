//! `cargo xtask runner userdata`: creates the cloud-init user data for a server.

use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::anyhow;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cli::{OrExit, print_json};
use cloud::userdata::{LARGEST, Worker, render};
use model::{Exit, Secret};
use serde::Serialize;
use sys::progress;
use targets::Catalogue;

use super::private::Private;
use super::{Stop, machine, show};
use crate::Error;
use crate::args::UserdataOptions;
use crate::jit::setting;

/// Replaces the configuration in a dry run without one.
const MASK: &str = "***";
/// A configuration has a few thousand bytes.
const LARGEST_FILE: u64 = 1 << 20;

/// The keys of `--json`.
#[derive(Serialize)]
struct Made<'a> {
    name: &'a str,
    arch: &'a str,
    agent: String,
    version: &'a str,
    bytes: usize,
    largest: usize,
    out: Option<String>,
}

pub(crate) fn run(targets: &Path, options: &UserdataOptions) -> Result<(), Stop> {
    let catalogue = Catalogue::load(targets)?;
    let target = catalogue.target(&options.arch)?;
    if let Some(provider) = &options.worker.provider {
        machine::check_provider(&catalogue, provider)?;
    }
    let agent = machine::agent(&catalogue, target, &options.worker)?;
    let jit = options.jit.as_deref().map(read).transpose()?;
    let name = options.name.clone().or_else(|| setting(jit.as_ref()?, "agentName"));
    let name = name.unwrap_or_else(|| format!("{}-{}", crate::PREFIX, target.name));
    let shown = jit.is_none();
    let worker = Worker {
        name,
        agent,
        // Base64, so that it passes the same check as a real configuration.
        jit: jit.unwrap_or_else(|| Secret::from(STANDARD.encode(MASK))),
        packages: options.worker.packages.clone(),
        minutes: options.worker.minutes,
        preparation: machine::preparation(&catalogue, target, &options.worker)?,
        keep_default_user: options.worker.keep_default_user,
    };
    let text = render(&worker)?;
    let masked = worker.jit.masked_in(text.expose());
    let made = Made {
        name: &worker.name,
        arch: &target.name,
        agent: worker.agent.url.clone(),
        version: &worker.agent.version,
        bytes: text.expose().len(),
        largest: LARGEST,
        out: options.out.as_ref().map(|file| file.display().to_string()),
    };
    if options.dry_run || shown {
        return if options.json { Ok(print_json(&made)?) } else { show(&format!("{masked}\n")) };
    }
    deliver(options, &text, &made)
}

/// Writes to the file or to stdout. Refuses a terminal, which would keep the secret in its scrollback.
fn deliver(options: &UserdataOptions, text: &Secret, made: &Made<'_>) -> Result<(), Stop> {
    match &options.out {
        Some(file) => {
            Private::create(file)?.write(text)?;
            progress::say(&format!("{}: {} bytes of user data for {}", file.display(), made.bytes, made.name));
            if options.json { Ok(print_json(made)?) } else { Ok(()) }
        }
        None if options.json => {
            let text = "--json prints a description of the user data: give --out FILE for the data itself";
            Err(Error::Config(text.into()).into())
        }
        None if std::io::stdout().is_terminal() && !options.reveal => {
            Err(Error::Policy("the user data contains a key: give --out FILE, or --reveal to print it".into()).into())
        }
        None => show(&format!("{}\n", text.expose())),
    }
}

pub(super) fn read(file: &Path) -> Result<Secret, Stop> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().take(LARGEST_FILE).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|open| open.take(LARGEST_FILE).read_to_end(&mut bytes))
    };
    read.map_err(|error| Error::Config(format!("failed to read the configuration {}: {error}", file.display())))?;
    let text = String::from_utf8(bytes).map_err(|_| anyhow!("{} is not text", file.display())).or_exit(Exit::Usage)?;
    Ok(Secret::from(text))
}
