//! `cargo xtask way-out FILE`: one connection of a guest to a port of this machine, as this process's input and output.
//! QEMU starts it, nobody else: see `boot::WayOut`.

use std::fs::{File, read_to_string};
use std::io::{copy, stdin, stdout};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::AsFd;

use anyhow::Context;
use model::Exit;

use crate::args::WayOutOptions;
use crate::failure::{Failure, OrExit};

pub(crate) fn run(options: &WayOutOptions) -> Result<Exit, Failure> {
    carry(options).or_exit(Exit::Infrastructure)?;
    Ok(Exit::Ok)
}

fn carry(options: &WayOutOptions) -> anyhow::Result<()> {
    let file = &options.file;
    let port = read_to_string(file).with_context(|| format!("nobody has opened a way out with {}", file.display()))?;
    let port: u16 = port.trim().parse().with_context(|| format!("{} holds no port", file.display()))?;
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    let mut stream = stream.with_context(|| format!("failed to connect to port {port}"))?;
    stream.set_nodelay(true)?;
    let mut back = stream.try_clone()?;
    // The standard library's own handles would keep bytes until a line ends.
    let mut input = File::from(stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(stdout().as_fd().try_clone_to_owned()?);
    // Not waited for: when this machine's side has ended, so has the connection.
    std::thread::spawn(move || {
        let _ = copy(&mut input, &mut stream);
        let _ = stream.shutdown(Shutdown::Write);
    });
    copy(&mut back, &mut output)?;
    Ok(())
}
