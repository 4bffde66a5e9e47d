//! `cargo xtask runner request`: prints an application for machines. Nothing is sent.

use std::collections::BTreeMap;
use std::path::Path;

use cli::print_json;
use cloud::request;
use model::RequestForm;
use sys::progress;
use targets::Catalogue;

use super::{Stop, show};
use crate::Error;
use crate::args::RequestOptions;

pub(crate) fn run(targets: &Path, options: &RequestOptions) -> Result<(), Stop> {
    let catalogue = Catalogue::load(targets)?;
    let form = form(&catalogue, &options.provider)?;
    let Some(file) = &options.answers else {
        return if options.json { Ok(print_json(form)?) } else { deliver(options, &request::template(form)) };
    };
    let read = std::fs::read_to_string(file);
    let text =
        read.map_err(|error| Error::Config(format!("failed to read the answers {}: {error}", file.display())))?;
    let filled = request::parse(&text).and_then(|answers| request::fill(form, &answers));
    let filled = filled.map_err(|wrong| {
        let lines: String = wrong.iter().map(|line| format!("\n{}: {line}", file.display())).collect();
        Error::Config(format!("{} of the answers are not valid:{lines}", wrong.len()))
    })?;
    if options.json {
        return Ok(print_json(&filled.into_iter().collect::<BTreeMap<String, String>>())?);
    }
    if options.dry_run {
        progress::say(&format!("{}: all {} answers fit the form", file.display(), filled.len()));
        return Ok(());
    }
    deliver(options, &request::text(form, &filled))
}

fn form<'a>(catalogue: &'a Catalogue, provider: &str) -> Result<&'a RequestForm, Error> {
    let forms = &catalogue.requests.forms;
    if let Some(form) = forms.iter().find(|form| form.provider == provider) {
        return Ok(form);
    }
    let with: Vec<&str> = forms.iter().map(|form| form.provider.as_str()).collect();
    let text = match catalogue.runners.provider(provider) {
        Some(known) => format!("{} needs no application: {}", known.title, known.apply),
        None => format!("unknown provider `{provider}`"),
    };
    Err(Error::Config(format!("{text}; providers with an application: {}", with.join(", "))))
}

fn deliver(options: &RequestOptions, text: &str) -> Result<(), Stop> {
    let Some(file) = &options.out else { return show(text) };
    std::fs::write(file, text)
        .map_err(|error| Error::Config(format!("failed to write {}: {error}", file.display())))?;
    progress::say(&format!("wrote {}; nothing was sent", file.display()));
    Ok(())
}
