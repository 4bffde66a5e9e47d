//! Glance and Neutron: ids of images, networks and security groups that are given by name.
//!
//! <https://docs.openstack.org/api-ref/image/v2/> <https://docs.openstack.org/api-ref/network/v2/>

use reqwest::Url;
use serde_json::Value;

use crate::fault::Fault;
use crate::http::{self, Call};
use crate::session::Session;

/// An image and its declared architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub id: String,
    pub name: String,
    /// The value of `uname -m`; many images do not declare it.
    pub architecture: Option<String>,
}

/// The newest active image with this name, or the image with this id.
pub fn image(session: &Session, name: &str) -> Result<Image, Fault> {
    let call = images_call(&session.endpoint("image")?, name);
    newest(&session.call(&call)?, name)
}

pub(crate) fn newest(answer: &Value, name: &str) -> Result<Image, Fault> {
    let images: Vec<&Value> = answer["images"].as_array().into_iter().flatten().collect();
    // The server sorts, but an old version may not support sorting.
    let newest = images.iter().max_by_key(|image| image["created_at"].as_str().unwrap_or_default());
    let image = newest.ok_or_else(|| Fault::config(format!("the cloud has no active image `{name}`")))?;
    let id = image["id"].as_str().ok_or_else(|| Fault::remote(format!("Glance's image `{name}` has no id")))?;
    let text = |field: &str| image[field].as_str().map(str::to_owned);
    Ok(Image {
        id: id.to_owned(),
        name: text("name").unwrap_or_else(|| name.to_owned()),
        architecture: text("hw_architecture").or_else(|| text("architecture")),
    })
}

/// The id of a network that is given by name or id.
pub fn network(session: &Session, name: &str) -> Result<String, Fault> {
    one(session, "networks", "network", name)
}

/// Returns the given name if such a group exists.
pub fn security_group(session: &Session, name: &str) -> Result<String, Fault> {
    one(session, "security-groups", "security group", name)
}

fn one(session: &Session, path: &str, what: &str, name: &str) -> Result<String, Fault> {
    only(&session.call(&neutron_call(&session.endpoint("network")?, path, what, name))?, path, what, name)
}

pub(crate) fn only(answer: &Value, path: &str, what: &str, name: &str) -> Result<String, Fault> {
    let found: Vec<&str> = answer[path.replace('-', "_")]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|entry| entry["id"].as_str())
        .collect();
    match found.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(Fault::config(format!("the cloud has no {what} `{name}` that this project may use"))),
        several => Err(Fault::config(format!(
            "the cloud has {} {what}s `{name}`: give an id instead ({})",
            several.len(),
            several.join(", ")
        ))),
    }
}

pub(crate) fn images_call(base: &Url, name: &str) -> Call {
    let versioned = base.path().trim_end_matches('/').ends_with("/v2");
    let mut url = http::below(base, if versioned { "images" } else { "v2/images" });
    let field = if is_id(name) { "id" } else { "name" };
    url.query_pairs_mut()
        .append_pair(field, &exactly(field, name))
        .append_pair("status", "active")
        .append_pair("sort", "created_at:desc");
    Call::get(format!("Glance: the image `{name}`"), url)
}

pub(crate) fn neutron_call(base: &Url, path: &str, what: &str, name: &str) -> Call {
    let versioned = base.path().trim_end_matches('/').ends_with("/v2.0");
    let mut url = http::below(base, &if versioned { path.to_owned() } else { format!("v2.0/{path}") });
    url.query_pairs_mut().append_pair(if is_id(name) { "id" } else { "name" }, name);
    Call::get(format!("Neutron: the {what} `{name}`"), url)
}

/// Glance has lists in its filters (`in:a,b`); a name in quotes is taken literally.
fn exactly(field: &str, name: &str) -> String {
    if field == "name" && name.contains([',', ':', '"']) {
        format!("in:\"{}\"", name.replace('"', "\\\""))
    } else {
        name.into()
    }
}

fn is_id(text: &str) -> bool {
    let parts: Vec<usize> = text.split('-').map(str::len).collect();
    parts == [8, 4, 4, 4, 12] && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}
