//! Raises the number of connections to a guest that may arrive at once: QEMU's user network has room for two.
//!
//! libslirp listens on each forwarded port with a backlog of one, and accepts one connection per iteration of its loop.
//! The host's kernel drops further connections and sends them again after 0.2 s, 0.4 s, 0.8 s: of 24 connections that a
//! check opened at once, two came through each time, and the last one was reset after 107 s. `nstat -az
//! TcpExtListenOverflows` counts the drops, and `ss -ltn` shows the backlog as Send-Q.
//!
//! QEMU has no option for it. But listen(2) on a socket that already listens sets a new backlog, and a process may get
//! the sockets of a process that it started (pidfd_getfd(2), Linux 5.6; some containers forbid it).

use std::fs::read_dir;
use std::os::fd::OwnedFd;

use anyhow::{Context, bail};
use rustix::io::Errno;
use rustix::net::{AddressFamily, listen, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// The kernel reduces it to `net.core.somaxconn`.
const ROOM: i32 = 4096;

/// Sets a longer backlog on the `ports` TCP sockets on which the process listens.
pub(super) fn widen(process: i32, ports: usize) -> anyhow::Result<()> {
    let pid = Pid::from_raw(process).context("QEMU has no process id")?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).context("failed to open the process of QEMU")?;
    let mut widened = 0;
    let folder = format!("/proc/{process}/fd");
    for entry in read_dir(&folder).with_context(|| format!("failed to read {folder}"))? {
        let name = entry?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let file = match pidfd_getfd(&handle, number, PidfdGetfdFlags::empty()) {
            // The descriptor was closed after the folder was read.
            Err(Errno::BADF) => continue,
            file => {
                file.context("failed to get QEMU's sockets with pidfd_getfd; in a container this needs CAP_SYS_PTRACE")?
            }
        };
        if listens(&file) {
            listen(&file, ROOM).context("failed to set the backlog of a port")?;
            widened += 1;
        }
    }
    if widened != ports {
        bail!("QEMU listens on {widened} TCP sockets instead of {ports}");
    }
    Ok(())
}

/// Whether it is a listening TCP socket. For a descriptor that is not a socket, the system call fails.
fn listens(file: &OwnedFd) -> bool {
    let inet = sockopt::socket_domain(file).is_ok_and(|domain| domain == AddressFamily::INET);
    inet && sockopt::socket_acceptconn(file).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::process::id;

    use super::*;

    #[test]
    fn listening_socket_gets_a_longer_backlog() -> anyhow::Result<()> {
        let socket = rustix::net::socket(AddressFamily::INET, rustix::net::SocketType::STREAM, None)?;
        rustix::net::bind(&socket, &"127.0.0.1:0".parse::<std::net::SocketAddr>()?)?;
        listen(&socket, 1)?;
        let listener = TcpListener::from(socket);
        let address = listener.local_addr()?;
        match widen(i32::try_from(id())?, 1) {
            // Happens in a container without CAP_SYS_PTRACE.
            Err(error) if error.downcast_ref() == Some(&Errno::PERM) => return Ok(()),
            // Other tests of this process may also listen.
            _ => {}
        }
        let connect = || TcpStream::connect_timeout(&address, std::time::Duration::from_millis(150));
        let waiting: Vec<TcpStream> = (0..20).map(|_| connect()).collect::<Result<_, _>>()?;
        assert_eq!(waiting.len(), 20);
        Ok(())
    }

    #[test]
    fn missing_process_is_an_error() {
        assert!(widen(i32::MAX, 0).is_err());
    }
}
