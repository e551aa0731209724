//! Decodes replies. The parts that grow when decoded are limited before decoding: an empty string takes two bytes on
//! the wire and 24 in memory, so the length of a reply does not limit its size in memory.

use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use super::messages::{CallReply, FromWorker, HelloReply, health};

/// The maximum number of telemetry reports in a reply.
const MOST_TELEMETRY: usize = 10_000;
/// The maximum length of an error.
const LONGEST_ERROR: usize = 1 << 20;

/// A message of a worker.
pub(super) trait RpcReply: Message + Default + 'static {
    /// Rejects bytes that would need too much memory once decoded.
    fn check(_bytes: &[u8]) -> Result<(), &'static str> {
        Ok(())
    }
}

impl RpcReply for CallReply {
    fn check(bytes: &[u8]) -> Result<(), &'static str> {
        let (mut telemetry, mut error) = (0, 0);
        for (number, length) in Fields(bytes) {
            match number {
                2 => error += length,
                3 => telemetry += 1,
                _ => {}
            }
        }
        match (error > LONGEST_ERROR, telemetry > MOST_TELEMETRY) {
            (true, _) => Err("its error is longer than 1 MiB"),
            (_, true) => Err("it has more than 10,000 reports of telemetry"),
            (false, false) => Ok(()),
        }
    }
}

// Its decoded size is at most a few times its encoded size.
impl RpcReply for FromWorker {}
// Its length is limited.
impl RpcReply for HelloReply {}
impl RpcReply for health::Response {}

/// The fields of a message: the number of each, and the length of its contents. Stops at an invalid field, which the
/// decoder reports.
struct Fields<'a>(&'a [u8]);

impl Iterator for Fields<'_> {
    type Item = (u64, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = varint(&mut self.0)?;
        let length = match tag & 7 {
            0 => {
                varint(&mut self.0)?;
                return Some((tag >> 3, 0));
            }
            1 => 8,
            2 => usize::try_from(varint(&mut self.0)?).ok()?,
            5 => 4,
            _ => return None,
        };
        self.0 = self.0.get(length..)?;
        Some((tag >> 3, length))
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    prost::encoding::decode_varint(bytes).ok()
}

/// Encodes requests, and checks replies before they are decoded.
pub(super) struct ReplyCodec<M, R>(PhantomData<(M, R)>);

impl<M, R> Default for ReplyCodec<M, R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<M: Message + 'static, R: RpcReply> Codec for ReplyCodec<M, R> {
    type Encode = M;
    type Decode = R;
    type Encoder = ProstEncoder<M>;
    type Decoder = ReplyDecoder<R>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<M, R>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        ReplyDecoder(ProstCodec::<M, R>::default().decoder())
    }
}

pub(super) struct ReplyDecoder<R>(ProstDecoder<R>);

impl<R: RpcReply> Decoder for ReplyDecoder<R> {
    type Item = R;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<R>, Status> {
        // tonic passes the whole message in one piece.
        if buf.chunk().len() < buf.remaining() {
            return Err(Status::internal("its reply came in pieces"));
        }
        R::check(buf.chunk())
            .map_err(|fault| Status::resource_exhausted(format!("its reply is rejected: {fault}")))?;
        self.0.decode(buf)
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::{Error, Value, call_reply};
    use super::*;

    fn checked(reply: &CallReply) -> Result<(), &'static str> {
        CallReply::check(&reply.encode_to_vec())
    }

    #[test]
    fn a_reply_that_would_be_large_after_decoding_is_rejected() {
        let telemetry =
            |count| CallReply { telemetry: vec![Value::default(); count], said: 3, ..CallReply::default() };
        assert_eq!(checked(&telemetry(MOST_TELEMETRY)), Ok(()));
        assert!(checked(&telemetry(MOST_TELEMETRY + 1)).is_err());
        let error = |notes| {
            let outcome = Error { notes: vec![String::new(); notes], ..Error::default() };
            CallReply { outcome: Some(call_reply::Outcome::Error(outcome)), ..CallReply::default() }
        };
        assert_eq!(checked(&error(1000)), Ok(()));
        assert!(checked(&error(LONGEST_ERROR)).is_err());
        // The parts of a field that occurs twice are merged.
        let half = error(LONGEST_ERROR / 3).encode_to_vec();
        assert_eq!(CallReply::check(&half), Ok(()));
        assert!(CallReply::check(&[&half[..], &half[..]].concat()).is_err());
    }

    #[test]
    fn a_value_may_be_as_long_as_a_message() {
        let value = Value { data: vec![b'1'; 8 << 20].into(), encoding: 1 };
        let reply = CallReply { outcome: Some(call_reply::Outcome::Value(value)), ..CallReply::default() };
        assert_eq!(checked(&reply), Ok(()));
    }

    #[test]
    fn bytes_that_are_not_a_message_pass_the_check_and_are_left_to_the_decoder() {
        for bytes in [
            &b"\xff\xff\xff"[..],
            b"\x1a",
            b"\x1a\x05x",
            b"\x07",
            b"",
            b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert_eq!(CallReply::check(bytes), Ok(()));
        }
    }
}
