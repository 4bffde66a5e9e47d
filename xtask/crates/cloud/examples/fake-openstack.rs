//! Serves the fake OpenStack cloud of the tests until standard input ends, and prints its address.
//! `.ci/runner-mocks/run` uses it with OpenStack's own client.

#[path = "../tests/fake/mod.rs"]
#[expect(dead_code, reason = "parts of the fake are for other tests")]
mod fake;

use std::io::{Read, Write};

fn main() -> std::io::Result<()> {
    let fake = fake::Fake::start();
    writeln!(std::io::stdout(), "{}", fake.auth_url())?;
    std::io::stdin().read_to_end(&mut Vec::new()).map(|_| ())
}
