//! Runner of a command in a pseudo-terminal.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Runs a command on a terminal of this width. Returns the exit code and what the terminal received, standard error
/// included.
pub(crate) fn run_on_terminal(mut command: Command, columns: u16) -> (i32, String) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    let slave = File::options().read(true).write(true).open(path).unwrap();
    let size = Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&slave, size).unwrap();
    command.env("TERM", "xterm-256color");
    command.stdin(Stdio::null()).stdout(slave.try_clone().unwrap()).stderr(slave);
    let mut child = command.spawn().unwrap();
    // The command keeps the terminal open otherwise, and the output would have no end.
    drop(command);
    let mut screen = Vec::new();
    let mut master = File::from(master);
    let mut part = [0; 4096];
    loop {
        match master.read(&mut part) {
            Ok(0) => break,
            Ok(length) => screen.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Linux reports the end as EIO.
            Err(_) => break,
        }
    }
    let code = child.wait().unwrap().code().unwrap();
    (code, String::from_utf8(screen).unwrap().replace("\r\n", "\n"))
}
