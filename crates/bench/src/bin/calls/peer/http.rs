//! As much of an HTTP/1.1 client as an echo needs: one keep-alive connection, one request at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use snakepit_bench::BenchResult;

/// A keep-alive connection.
pub(crate) struct HttpConnection {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
    body: Vec<u8>,
}

impl HttpConnection {
    pub(crate) fn open(port: u16) -> BenchResult<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), request: Vec::new(), body: Vec::new() })
    }

    /// Posts a body and reads the answer, which must have the same length.
    pub(crate) fn post(&mut self, path: &str, bytes: usize) -> BenchResult<()> {
        self.request.clear();
        write!(self.request, "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {bytes}\r\n\r\n")?;
        self.request.resize(self.request.len() + bytes, 0x5a);
        self.stream.get_mut().write_all(&self.request)?;

        let (mut line, mut length, mut first) = (String::new(), 0, true);
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err("the server closed the connection".into());
            }
            if first && !line.contains(" 200 ") {
                return Err(format!("the server answered {}", line.trim_end()).into());
            }
            first = false;
            if line == "\r\n" {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body)?;
        if length == bytes { Ok(()) } else { Err(format!("{length} bytes instead of {bytes}").into()) }
    }
}
