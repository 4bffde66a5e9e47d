//! `runner token`: requests a token for `config.sh`.

use std::io::IsTerminal;

use serde_json::json;
use sys::progress;

use super::{Stop, shown, with_github};
use crate::args::{TokenKind, TokenOptions};
use crate::{Error, policy};

pub(super) fn run(options: &TokenOptions) -> Result<u8, Stop> {
    let dry_run = options.access.output.dry_run;
    if std::io::stdout().is_terminal() && !options.reveal && !dry_run {
        let text = "stdout is a terminal: redirect it to a file or pipe, or give --reveal";
        return Err(Error::Config(text.into()).into());
    }
    with_github(&options.access, |github| {
        let token = match options.kind {
            TokenKind::Remove => github.remove_token()?,
            TokenKind::Register => {
                let (repository, groups) = (github.repository()?, github.groups()?);
                policy::registration(repository.as_ref(), &groups, options.allow_persistent_public)?;
                github.registration_token()?
            }
        };
        progress::say(&format!("the token is valid until {}", token.expires_at));
        let secret = token.token.expose();
        let json = json!({ "token": secret, "expires_at": token.expires_at });
        Ok(shown(format!("{secret}\n"), json))
    })
}
