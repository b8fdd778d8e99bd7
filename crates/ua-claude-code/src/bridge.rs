//! The bridge: what `claude` starts as an MCP server. It only carries lines between its standard streams and the desk's socket.
//!
//! It has no lock, no store and no say: whatever kills it, the process that drives the run knows what was asked and what came of it. It ends
//! when `claude` closes its side, and at no other time: the shim ends both when the process that drives the run is gone.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use ua_bridge::Address;
use ua_core::ShowPath as _;

/// Runs the bridge with its raw arguments, a socket and the name of the tool server it stands for, and returns the exit code for `main`.
pub fn run_bridge(args: impl IntoIterator<Item = OsString>) -> i32 {
    let args: Vec<OsString> = args.into_iter().collect();
    let [socket, server] = args.as_slice() else {
        let _unread = writeln!(io::stderr(), "tool bridge: a socket and the name of a tool server are needed");
        return 64;
    };
    // The shim asks all that is below it to end. Who ended first would tell `claude` by it that its calls are over.
    if let Err(error) = ua_mcp::outlive_requests_to_end() {
        let _unread = writeln!(io::stderr(), "tool bridge: it may end before claude does: {error}");
    }
    match carry(Path::new(socket), &server.to_string_lossy()) {
        Ok(()) => 0,
        Err(error) => {
            let _unread = writeln!(io::stderr(), "tool bridge: {}: {error}", Path::new(socket).shown());
            69
        }
    }
}

fn carry(socket: &Path, server: &str) -> io::Result<()> {
    let mut stream = UnixStream::connect(Address::of(socket)?)?;
    writeln!(stream, "{}", serde_json::json!({"server": server}))?;
    between(stream, io::stdin(), io::stdout())
}

/// Carries lines until `claude` closes its side. A desk that is gone says nothing more, and neither does the bridge: an end here would read
/// as the result of the calls that wait, and `claude` would ask its model once more, in a request that nobody is there to charge.
fn between(desk: UnixStream, input: impl Read + Send + 'static, mut output: impl Write) -> io::Result<()> {
    let (mut to_desk, mut from_desk) = (desk.try_clone()?, desk);
    let heard = thread::spawn(move || {
        let mut input = input;
        // What a desk that is gone does not take is read all the same, up to the end.
        if copy(&mut input, &mut to_desk).is_err() {
            copy(&mut input, &mut io::sink())?;
        }
        to_desk.shutdown(Shutdown::Write)
    });
    let said = copy(&mut from_desk, &mut output);
    // A desk that broke off has gone; the other side's end is the only end. Nobody reads what comes when `output` is closed.
    heard.join().map_err(|_panic| io::Error::other("the reading side broke down"))?.ok();
    match said {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        said => said,
    }
}

/// Copies what comes as it comes.
fn copy(from: &mut impl Read, into: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        into.write_all(&buffer[..read])?;
        into.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    /// A bridge as `claude` has it: what it writes, what it reads, and the bridge's end.
    type Bridge = (UnixStream, BufReader<UnixStream>, thread::JoinHandle<io::Result<()>>);

    fn bridge() -> (UnixStream, Bridge) {
        let (desk, its_desk) = UnixStream::pair().unwrap();
        let (input, its_input) = UnixStream::pair().unwrap();
        let (output, its_output) = UnixStream::pair().unwrap();
        let bridge = thread::spawn(move || between(its_desk, its_input, its_output));
        (desk, (input, BufReader::new(output), bridge))
    }

    fn line(from: &mut impl BufRead) -> String {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        line
    }

    #[test]
    fn lines_go_both_ways_until_claude_ends() {
        let (desk, (mut input, mut output, bridge)) = bridge();
        writeln!(input, "asked").unwrap();
        assert_eq!(line(&mut BufReader::new(desk.try_clone().unwrap())), "asked\n");
        writeln!(&desk, "answered").unwrap();
        assert_eq!(line(&mut output), "answered\n");
        drop(input);
        assert_eq!(line(&mut BufReader::new(desk.try_clone().unwrap())), "", "the desk learns of the end");
        drop(desk);
        bridge.join().unwrap().unwrap();
    }

    #[test]
    fn a_desk_that_goes_away_ends_no_call_that_waits_for_it() {
        // With what it was asked unread, and without anything.
        for asked in ["asked\n", ""] {
            let (desk, (mut input, mut output, bridge)) = bridge();
            write!(input, "{asked}").unwrap();
            drop(desk);
            // More than any buffer between the two holds: it is read although nobody takes it.
            for _ in 0..64 {
                input.write_all(&vec![b'x'; 64 * 1024]).unwrap();
            }
            output.get_ref().set_nonblocking(true).unwrap();
            let nothing = output.read_line(&mut String::new()).unwrap_err().kind();
            assert_eq!((nothing, bridge.is_finished()), (io::ErrorKind::WouldBlock, false), "{asked:?}");
            drop(input);
            bridge.join().unwrap().unwrap();
        }
    }
}
