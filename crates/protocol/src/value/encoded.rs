//! [`Encoded`]: the bytes of one value, in the form in which they travel in a frame.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::builder::ValueBuilder;
use super::decode::Decoder;
use super::read::{Reader, Token};
use super::{Value, ValueError, write};

/// A value in the bytes of the wire format. Cheap to clone.
///
/// The head is MessagePack. Long byte strings are kept beside the head as bodies, which are shared and not copied.
///
/// ```no_run
/// use snakepit::value::Encoded;
///
/// # async fn example(pit: snakepit::Snakepit) -> Result<(), snakepit::CallError> {
/// // The host hands the table on without decoding it.
/// let table: Encoded = pit.call("load", ("prices.csv",)).await?;
/// let mean: f64 = pit.call("mean", (table,)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Encoded {
    head: Bytes,
    bodies: Bodies,
    /// Whether the head is known to be exactly one value, because it was encoded or checked here. A head from a frame
    /// may be anything.
    verified: bool,
    /// The memory in KiB that the lists, maps and copies of the decoded value may take.
    most_memory: u32,
}

/// The memory limit, in KiB, for a decoded value of unknown origin. A value that was encoded here has no limit.
const MOST_MEMORY: u32 = 1 << 20;
/// The smallest memory limit, in bytes, whatever `max_frame` is.
const LEAST_MEMORY: usize = 64 << 20;

/// The byte strings beside a head. They are behind a pointer because few values have bodies and all values are moved
/// often.
#[derive(Clone)]
pub(super) enum Bodies {
    None,
    /// The bodies of a received frame, in one piece.
    Joined(Arc<Bytes>),
    /// The bodies of a value that was encoded here, each in its own memory.
    Parts(Arc<Vec<BodyPart>>),
}

#[derive(Debug, Clone)]
pub(super) struct BodyPart {
    pub(super) offset: u32,
    pub(super) bytes: Bytes,
}

impl Bodies {
    pub(super) fn from_parts(parts: Vec<BodyPart>) -> Self {
        if parts.is_empty() { Self::None } else { Self::Parts(Arc::new(parts)) }
    }

    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Joined(bytes) => bytes.len(),
            Self::Parts(parts) => parts.last().map_or(0, |it| it.offset as usize + it.bytes.len()),
        }
    }

    fn get(&self, offset: u32, len: u32) -> Option<(&Bytes, std::ops::Range<usize>)> {
        let (bytes, start) = match self {
            Self::None => return None,
            Self::Joined(bytes) => (&**bytes, offset as usize),
            Self::Parts(parts) => {
                let behind = parts.partition_point(|it| it.offset <= offset);
                let part = &parts[behind.checked_sub(1)?];
                (&part.bytes, (offset - part.offset) as usize)
            }
        };
        let end = start.checked_add(len as usize)?;
        (end <= bytes.len()).then_some((bytes, start..end))
    }
}

thread_local! {
    /// Memory for a head whose length is not known yet. The finished head is copied out of it.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Heads up to this length are copied out of the scratch memory. Longer heads take the memory with them.
const LARGEST_COPY: usize = 4096;

/// The most list entries for which memory is reserved in advance, so that a false length cannot reserve much.
const FIRST_ENTRIES: usize = 256;

/// The layout of a frame's payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PayloadLayout {
    /// One value.
    Plain,
    /// The length of the value, the value, and the byte strings that it refers to.
    WithBodies,
}

/// Converts the flag for bodies in the header of a frame.
impl From<bool> for PayloadLayout {
    fn from(has_bodies: bool) -> Self {
        if has_bodies { Self::WithBodies } else { Self::Plain }
    }
}

impl Encoded {
    /// Encodes a value.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, ValueError> {
        let mut builder = Self::builder();
        builder.value(value)?;
        Ok(Self::finish(builder))
    }

    /// Returns a builder that reuses the memory of an earlier one.
    #[inline]
    pub(super) fn builder() -> ValueBuilder {
        // Taken, not borrowed: if a `Serialize` encodes another value itself, that encoder finds the slot empty and
        // allocates.
        ValueBuilder::with_head(SCRATCH.take())
    }

    #[inline]
    pub(super) fn finish(builder: ValueBuilder) -> Self {
        if builder.head.len() > LARGEST_COPY {
            return builder.finish();
        }
        let copy = Bytes::copy_from_slice(&builder.head);
        let (encoded, head) = builder.finish_as(copy);
        SCRATCH.set(cleared(head));
        encoded
    }

    /// Wraps the payload of a frame. The value is checked when it is decoded.
    pub fn from_payload(payload: Bytes, layout: PayloadLayout) -> Result<Self, ValueError> {
        if layout == PayloadLayout::Plain {
            let bodies = Bodies::None;
            return Ok(Self { head: payload, bodies, verified: false, most_memory: MOST_MEMORY });
        }
        let cut_short = || ValueError::malformed("the payload ends inside its head");
        let (len, _) = payload.split_first_chunk::<4>().ok_or_else(cut_short)?;
        let end = (u32::from_le_bytes(*len) as usize).checked_add(4).filter(|it| *it <= payload.len());
        let end = end.ok_or_else(cut_short)?;
        let bodies = Bodies::Joined(Arc::new(payload.slice(end..)));
        Ok(Self { head: payload.slice(4..end), bodies, verified: false, most_memory: MOST_MEMORY })
    }

    /// Wraps the payload of a frame from a worker whose frames have at most `max_frame` bytes. The decoded value may
    /// take four times as much memory, and at least 64 MiB.
    pub fn from_worker(payload: Bytes, layout: PayloadLayout, max_frame: usize) -> Result<Self, ValueError> {
        let most = max_frame.saturating_mul(4).max(LEAST_MEMORY) >> 10;
        let most_memory = u32::try_from(most).unwrap_or(u32::MAX);
        Ok(Self { most_memory, ..Self::from_payload(payload, layout)? })
    }

    pub(super) fn from_parts(head: Bytes, bodies: Bodies) -> Self {
        Self { head, bodies, verified: true, most_memory: u32::MAX }
    }

    /// Returns a part of this value. `head` holds the bytes of that part, which the caller has checked to be exactly
    /// one value.
    pub(super) fn part(&self, head: &[u8]) -> Self {
        let (head, bodies) = (self.head.slice_ref(head), self.bodies.clone());
        Self { head, bodies, verified: true, most_memory: self.most_memory }
    }

    /// Decodes the value into a type of the caller.
    ///
    /// Reads the whole value. Fails if bytes follow it. If a key occurs twice, the last entry counts.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, ValueError> {
        self.decode_within(usize::MAX)
    }

    /// Like [`decode`](Self::decode), but limits the memory of lists, maps and copies to `room` bytes.
    pub fn decode_within<T: DeserializeOwned>(&self, room: usize) -> Result<T, ValueError> {
        match decode_with(Decoder::new(self).within(room)) {
            // Derived code rejects duplicate keys. They are rare, so keys are only compared after such an error.
            Err(error) if error.is_duplicate_field() => {
                decode_with(Decoder::last_key_counts(self).within(room))
            }
            result => result,
        }
    }

    /// Decodes the value into a [`Value`].
    pub fn to_value(&self) -> Result<Value, ValueError> {
        let mut decoder = Decoder::new(self);
        let value = decoder.value()?;
        decoder.finish()?;
        Ok(value)
    }

    /// Returns the number of entries of a list, according to its header. The entries are not checked.
    pub fn list_len(&self) -> Result<usize, ValueError> {
        match Reader::new(&self.head).token()? {
            Token::Array(entries) => Ok(entries),
            _ => Err(ValueError::malformed("it should be a list")),
        }
    }

    /// Joins consecutive encoded values into a list. Also returns their number.
    pub fn list_of(values: &[u8]) -> Result<(usize, Self), ValueError> {
        let (mut reader, mut count) = (Reader::new(values), 0_u32);
        while !reader.rest.is_empty() {
            reader.skip()?;
            count += 1;
        }
        let mut head = Vec::with_capacity(5 + values.len());
        write::array_header(&mut head, count);
        head.extend_from_slice(values);
        Ok((count as usize, Self::from_payload(head.into(), PayloadLayout::Plain)?))
    }

    /// Converts each entry of a list of pairs `[flag, value]` with `make`. Bypasses serde, because this runs for every
    /// call of a batch.
    pub fn flagged<T>(
        &self,
        mut make: impl FnMut(bool, Self) -> Result<T, ValueError>,
    ) -> Result<Vec<T>, ValueError> {
        let mut decoder = Decoder::new(self);
        let Token::Array(entries) = decoder.reader.token()? else {
            return Err(ValueError::malformed("it should be a list"));
        };
        let mut made = Vec::with_capacity(entries.min(FIRST_ENTRIES));
        for index in 0..entries {
            let reader = &mut decoder.reader;
            let (Token::Array(2), Token::Bool(flag)) = (reader.token()?, reader.token()?) else {
                return Err(ValueError::malformed("it should be [flag, value]").at_index(index));
            };
            let value = reader.rest;
            decoder.skip()?;
            let value = self.part(&value[..value.len() - decoder.reader.rest.len()]);
            made.push(make(flag, value).map_err(|error| error.at_index(index))?);
        }
        if decoder.reader.rest.is_empty() {
            Ok(made)
        } else {
            Err(ValueError::malformed("bytes follow the list"))
        }
    }

    /// Returns the number of bytes that [`write_to`](Self::write_to) writes.
    pub fn payload_len(&self) -> usize {
        match self.bodies {
            Bodies::None => self.head.len(),
            Bodies::Joined(_) | Bodies::Parts(_) => 4 + self.head.len() + self.bodies.len(),
        }
    }

    /// Reports whether the frame needs the flag for bodies.
    pub fn has_bodies(&self) -> bool {
        !matches!(self.bodies, Bodies::None)
    }

    /// Appends the payload of a frame: the head, and the bodies if there are any.
    pub fn write_to(&self, out: &mut impl BufMut) {
        self.write_head_to(out);
        for body in self.bodies() {
            out.put_slice(body);
        }
    }

    /// Appends everything before the bodies, for callers that write the bodies without a copy.
    pub fn write_head_to(&self, out: &mut impl BufMut) {
        if self.has_bodies() {
            out.put_u32_le(u32::try_from(self.head.len()).expect("a frame's payload is below 4 GiB"));
        }
        out.put_slice(&self.head);
    }

    /// Returns the bodies in the order in which they follow the head.
    pub fn bodies(&self) -> impl Iterator<Item = &Bytes> {
        let (joined, parts) = match &self.bodies {
            Bodies::None => (None, [].as_slice()),
            Bodies::Joined(bytes) => (Some(&**bytes), [].as_slice()),
            Bodies::Parts(parts) => (None, parts.as_slice()),
        };
        joined.into_iter().chain(parts.iter().map(|it| &it.bytes))
    }

    /// Returns the same value without the other contents of its frame. The bodies are still shared.
    pub fn trimmed(&self) -> Result<Self, ValueError> {
        let mut builder = ValueBuilder::default();
        builder.encoded(self)?;
        Ok(Self { most_memory: self.most_memory, ..builder.finish() })
    }

    /// Returns the value as one piece of MessagePack, with the bodies in place.
    pub fn inlined(&self) -> Result<Bytes, ValueError> {
        self.verify_once()?;
        if !self.has_bodies() {
            return Ok(self.head.clone());
        }
        let mut inlined = Vec::with_capacity(self.payload_len());
        let mut start: &[u8] = &self.head;
        let mut reader = Reader::new(&self.head);
        reader.skip_within(super::MAX_DEPTH, |token, rest| {
            match token {
                Token::Ext(super::read::Ext::Body { offset, len }) => {
                    super::write::bin_header(&mut inlined, len);
                    inlined.extend_from_slice(self.body_slice(offset, len)?);
                }
                _ => inlined.extend_from_slice(&start[..start.len() - rest.len()]),
            }
            start = rest;
            Ok(())
        })?;
        Ok(inlined.into())
    }

    /// Returns a copy of the value in its own memory. Otherwise a few bytes of a frame would keep the whole frame
    /// alive.
    pub fn detached(&self) -> Self {
        let mut bodies = Vec::new();
        let mut offset = 0;
        for body in self.bodies() {
            bodies.push(BodyPart { offset, bytes: Bytes::copy_from_slice(body) });
            offset += body.len() as u32;
        }
        let bodies = Bodies::from_parts(bodies);
        let Self { verified, most_memory, .. } = *self;
        Self { head: Bytes::copy_from_slice(&self.head), bodies, verified, most_memory }
    }

    /// Returns an encoded nil.
    pub fn nil() -> Self {
        Self::from_parts(Bytes::from_static(&[0xc0]), Bodies::None)
    }

    /// Encodes the arguments of a call. `()` means no arguments.
    pub fn encode_args<T: Serialize + ?Sized>(args: &T) -> Result<Self, ValueError> {
        super::Args::new(args).into_encoded()
    }

    /// Returns an encoded map without entries.
    pub fn empty_map() -> Self {
        Self::from_parts(Bytes::from_static(&[0x80]), Bodies::None)
    }

    /// Checks that the head is exactly one value. Needed before the head becomes part of another payload, where extra
    /// bytes would be read as the next value.
    pub(super) fn verify_once(&self) -> Result<(), ValueError> {
        if self.verified {
            return Ok(());
        }
        let mut decoder = Decoder::new(self);
        decoder.skip()?;
        decoder.finish()
    }

    /// Returns how much memory lists, maps and copies may take, in bytes.
    pub(super) fn most_memory(&self) -> usize {
        (self.most_memory as usize) << 10
    }

    pub(super) fn bodies_len(&self) -> usize {
        self.bodies.len()
    }

    pub(super) fn is_nil(&self) -> bool {
        *self.head == [0xc0]
    }

    /// Reports whether the value is a map without entries, in its shortest form.
    #[inline]
    pub fn is_empty_map(&self) -> bool {
        *self.head == [0x80]
    }

    /// Returns the value without its bodies.
    #[inline]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Returns a slice of the head that shares the head's memory.
    pub(super) fn head_bytes(&self, part: &[u8]) -> Bytes {
        self.head.slice_ref(part)
    }

    pub(super) fn body(&self, offset: u32, len: u32) -> Result<Bytes, ValueError> {
        let (bytes, range) = self.bodies.get(offset, len).ok_or_else(outside)?;
        Ok(bytes.slice(range))
    }

    pub(super) fn body_slice(&self, offset: u32, len: u32) -> Result<&[u8], ValueError> {
        let (bytes, range) = self.bodies.get(offset, len).ok_or_else(outside)?;
        Ok(&bytes[range])
    }
}

fn decode_with<T: DeserializeOwned>(mut decoder: Decoder<'_>) -> Result<T, ValueError> {
    let value = T::deserialize(&mut decoder)?;
    decoder.finish()?;
    Ok(value)
}

#[cold]
fn outside() -> ValueError {
    ValueError::malformed("a byte string lies outside the bodies of its frame")
}

/// Memory that many short values share: the inputs of a map. Each would otherwise be an allocation of its own, which
/// costs more than its encoding. A value that is kept keeps up to 16 KiB of its neighbours.
#[derive(Debug, Default)]
pub struct ValueBlock {
    block: BytesMut,
    /// The memory of the last head, for the next one.
    head: Vec<u8>,
}

/// The size of a block, and the longest head that is put into one.
const BLOCK: usize = 16 * 1024;
const LONGEST_IN_BLOCK: usize = 1024;

impl ValueBlock {
    /// Does what [`Encoded::encode_args`] does.
    pub fn encode_args<T: Serialize + ?Sized>(&mut self, args: &T) -> Result<Encoded, ValueError> {
        let mut builder = ValueBuilder::with_head(std::mem::take(&mut self.head));
        builder.value(args)?;
        if builder.head.len() > LONGEST_IN_BLOCK {
            return Ok(builder.finish());
        }
        if *builder.head == [0xc0] {
            self.head = cleared(builder.head);
            return Ok(Encoded::empty_map());
        }
        if self.block.capacity() < builder.head.len() {
            self.block = BytesMut::with_capacity(BLOCK);
        }
        self.block.extend_from_slice(&builder.head);
        let (encoded, head) = builder.finish_as(self.block.split().freeze());
        self.head = cleared(head);
        Ok(encoded)
    }
}

fn cleared(mut memory: Vec<u8>) -> Vec<u8> {
    memory.clear();
    memory
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_value() {
            Ok(value) => write!(f, "Encoded({value})"),
            Err(error) => write!(f, "Encoded(unreadable: {error})"),
        }
    }
}
