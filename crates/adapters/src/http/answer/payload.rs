//! The decompressed body of an answer, piece by piece.
//!
//! A few bytes of gzip can expand a thousandfold. The decoder works in small steps, and the reader counts the output.

use std::io::Write as _;

use flate2::write::MultiGzDecoder;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::{HeaderMap, Response, header};

use super::super::client::Connected;
use super::bad_value;
use crate::call::RemoteError;

/// The number of bytes to decode in one step. The output is at most about a thousand times as long.
const STEP: usize = 1024;

/// Why a body could not be read.
#[derive(Debug)]
pub(crate) enum BodyError {
    Broken(hyper::Error),
    TooLong,
    /// The body is not gzip, although its header says so.
    Undecodable(std::io::Error),
}

/// The body of a response, and the connection that it arrives on.
pub(crate) struct Payload {
    connected: Connected,
    body: Incoming,
    gzip: Option<Gzip>,
}

struct Gzip {
    decoder: MultiGzDecoder<Vec<u8>>,
    /// The bytes that have arrived and are not decoded yet.
    waiting: Bytes,
    has_begun: bool,
}

impl Payload {
    /// Returns the body of a response. An unknown compression is an error.
    pub(crate) fn of(response: Response<Incoming>, connected: Connected) -> Result<Self, RemoteError> {
        let is_gzip = is_gzip(response.headers())?;
        let gzip = is_gzip.then(|| Gzip {
            decoder: MultiGzDecoder::new(Vec::new()),
            waiting: Bytes::new(),
            has_begun: false,
        });
        Ok(Self { connected, body: response.into_body(), gzip })
    }

    /// Returns the length of the body, if the worker has announced it, and 0 otherwise.
    pub(crate) fn announced(&self) -> usize {
        if self.gzip.is_some() { 0 } else { usize::try_from(self.body.size_hint().lower()).unwrap_or(0) }
    }

    /// Returns the connection, which can be used again once the body is read to the end.
    pub(crate) fn into_connected(self) -> Connected {
        self.connected
    }

    /// Returns the next piece, which is never empty, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            if let Some(piece) = self.gzip.as_mut().map_or(Ok(None), Gzip::step)? {
                // Decoding takes time, and other tasks need the thread, too.
                tokio::task::consume_budget().await;
                return Ok(Some(piece));
            }
            match self.connected.drive(self.body.frame()).await.transpose().map_err(BodyError::Broken)? {
                None => return self.gzip.take().map_or(Ok(None), Gzip::finish),
                Some(frame) => match (frame.into_data(), &mut self.gzip) {
                    (Ok(data), Some(gzip)) => gzip.waiting = data,
                    (Ok(data), None) if !data.is_empty() => return Ok(Some(data)),
                    _ => {}
                },
            }
        }
    }
}

impl Gzip {
    /// Decodes until there is output, or all input is used.
    fn step(&mut self) -> Result<Option<Bytes>, BodyError> {
        while !self.waiting.is_empty() {
            let part = self.waiting.split_to(self.waiting.len().min(STEP));
            self.has_begun = true;
            self.decoder.write_all(&part).map_err(BodyError::Undecodable)?;
            let decoded = std::mem::take(self.decoder.get_mut());
            if !decoded.is_empty() {
                return Ok(Some(decoded.into()));
            }
        }
        Ok(None)
    }

    /// Returns the rest of the output. A truncated input is an error.
    fn finish(mut self) -> Result<Option<Bytes>, BodyError> {
        if !self.has_begun {
            return Ok(None);
        }
        self.decoder.try_finish().map_err(BodyError::Undecodable)?;
        let decoded = std::mem::take(self.decoder.get_mut());
        Ok((!decoded.is_empty()).then(|| decoded.into()))
    }
}

fn is_gzip(headers: &HeaderMap) -> Result<bool, RemoteError> {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    let said = codings.next().map_or("", |coding| coding.to_str().unwrap_or("?"));
    match said.trim().to_ascii_lowercase().as_str() {
        "" | "identity" if codings.next().is_none() => Ok(false),
        "gzip" | "x-gzip" if codings.next().is_none() => Ok(true),
        _ => {
            let message = format!(
                "the worker answered with the content-encoding {said:?}, and only gzip and identity can be read"
            );
            Err(bad_value(message))
        }
    }
}
