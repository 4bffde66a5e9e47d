//! TCP ports on the loopback interface.
//!
//! Another process can take a free port before the child binds it; the boot stage then tries again with new ports.
//! Ports are below the kernel's range for outgoing connections, whose source ports would otherwise collide with them.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;

use anyhow::bail;

/// Below 32768, where Linux's default `ip_local_port_range` begins.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port without a listener that this process has not given out before.
pub fn free() -> anyhow::Result<u16> {
    let mut given = crate::lock(&GIVEN);
    let width = RANGE.end - RANGE.start;
    let begin = RANGE.start + scatter() % width;
    for offset in 0..width {
        let port = RANGE.start + (begin - RANGE.start + offset) % width;
        if !given.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            given.insert(port);
            return Ok(port);
        }
    }
    bail!(
        "no free port between {} and {} on 127.0.0.1: list the listening processes with `ss -ltnp` and stop some",
        RANGE.start,
        RANGE.end
    )
}

/// How many ports this machine has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survey {
    pub first: u16,
    /// One after the last.
    pub end: u16,
    /// How many of them have no listener.
    pub free: usize,
}

/// Tries to bind every port of the range.
pub fn survey() -> Survey {
    let free = RANGE.filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).count();
    Survey { first: RANGE.start, end: RANGE.end, free }
}

/// A random start, so that two harnesses on one machine do not search from the same port.
fn scatter() -> u16 {
    use std::hash::{BuildHasher, Hasher};
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    u16::try_from(random & 0xffff).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_with_a_listener_is_not_free() {
        let Survey { first, end, free } = survey();
        assert!((1..=usize::from(end - first)).contains(&free), "{free}");
        let port = super::free().unwrap();
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert!(survey().free < usize::from(end - first));
    }

    #[test]
    fn ports_are_free_and_given_out_once() {
        let ports: BTreeSet<u16> = (0..50).map(|_| free().unwrap()).collect();
        assert_eq!(ports.len(), 50);
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        assert!(!ports.contains(&taken));
    }
}
