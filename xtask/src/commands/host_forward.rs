//! `cargo xtask host-forward FILE`: forwards one connection from a guest to a port of this machine, over this process's
//! stdin and stdout. Only QEMU starts it: see `boot::HostForward`.

use std::fs::{File, read_to_string};
use std::io::{copy, stdin, stdout};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::AsFd;

use anyhow::Context;
use cli::{Failure, OrExit};
use model::Exit;

use crate::args::HostForwardOptions;

pub(crate) fn run(options: &HostForwardOptions) -> Result<Exit, Failure> {
    carry(options).or_exit(Exit::Infrastructure)?;
    Ok(Exit::Ok)
}

fn carry(options: &HostForwardOptions) -> anyhow::Result<()> {
    let file = &options.file;
    let port = read_to_string(file).with_context(|| format!("failed to read the port from {}", file.display()))?;
    let port: u16 = port.trim().parse().with_context(|| format!("{} contains no port number", file.display()))?;
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    let mut stream = stream.with_context(|| format!("failed to connect to port {port}"))?;
    stream.set_nodelay(true)?;
    let mut back = stream.try_clone()?;
    // The handles of the standard library would buffer bytes until a line ends.
    let mut input = File::from(stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(stdout().as_fd().try_clone_to_owned()?);
    // Not joined: when the side of this machine ends, the connection is over.
    std::thread::spawn(move || {
        let _ = copy(&mut input, &mut stream);
        let _ = stream.shutdown(Shutdown::Write);
    });
    copy(&mut back, &mut output)?;
    Ok(())
}
