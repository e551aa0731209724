//! The serde serializer: encodes any `Serialize` into the head and the bodies of a [`ValueBuilder`].

mod compound;

use bytes::Bytes;
use serde::ser::{self, Serialize};

use self::compound::{Compound, CompoundKind};
use super::builder::{ValueBuilder, too_long};
use super::passthrough::{self, Handed};
use super::read::Reader;
use super::{BODY_THRESHOLD, BigInt, MAX_DEPTH, ValueError, ext, write};

pub(super) struct Encoder<'b> {
    builder: &'b mut ValueBuilder,
    depth: usize,
    /// If set, the next byte string is not a value, but the data of this extension or of [`RAW`].
    extension: Option<i8>,
}

/// Not an extension, but the bytes of a value that is already encoded.
const RAW: i8 = i8::MIN;

impl<'b> Encoder<'b> {
    /// Creates an encoder for a value inside `depth` open lists and maps.
    pub(super) fn new(builder: &'b mut ValueBuilder, depth: usize) -> Self {
        Self { builder, depth, extension: None }
    }

    #[inline]
    fn head(&mut self) -> &mut Vec<u8> {
        &mut self.builder.head
    }

    #[inline]
    fn enter(&mut self) -> Result<(), ValueError> {
        if self.depth == MAX_DEPTH {
            return Err(ValueError::unsendable(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.depth += 1;
        Ok(())
    }

    fn open(&mut self, shape: CompoundKind, len: Option<usize>) -> Result<Compound<'_, 'b>, ValueError> {
        self.enter()?;
        let start = self.builder.head.len();
        let promised = u32::try_from(len.unwrap_or(0)).map_err(|_| too_long("a list or a map"))?;
        shape.write(self.head(), promised);
        Ok(Compound::new(self, shape, start, promised))
    }

    /// Opens the map with one entry around the content of an enum's variant.
    fn open_variant(&mut self, variant: &'static str) -> Result<(), ValueError> {
        self.enter()?;
        write::map_header(self.head(), 1);
        write::str(self.head(), variant);
        Ok(())
    }

    fn byte_string(&mut self, bytes: &[u8]) -> Result<(), ValueError> {
        if bytes.len() >= BODY_THRESHOLD {
            return self.builder.body(Bytes::copy_from_slice(bytes));
        }
        write::bin_header(self.head(), bytes.len() as u32);
        self.head().extend_from_slice(bytes);
        Ok(())
    }

    /// Writes an integer of any size. Uses the extension only for integers beyond 64 bits.
    fn big_int(&mut self, number: &BigInt) -> Result<(), ValueError> {
        let small = i128::try_from(number).ok();
        if let Some(small) = small.and_then(|it| i64::try_from(it).ok()) {
            write::int(self.head(), small);
        } else if let Some(small) = small.and_then(|it| u64::try_from(it).ok()) {
            write::uint(self.head(), small);
        } else {
            self.extension_data(ext::BIG_INT, number.as_twos_complement())?;
        }
        Ok(())
    }

    fn extension_data(&mut self, kind: i8, data: &[u8]) -> Result<(), ValueError> {
        let len = u32::try_from(data.len()).map_err(|_| too_long("an integer"))?;
        write::ext_header(self.head(), kind, len);
        self.head().extend_from_slice(data);
        Ok(())
    }

    /// Checks the depth of a value that is already encoded, which may use the full depth by itself.
    fn check_depth(&self, head: &[u8]) -> Result<(), ValueError> {
        if self.depth == 0 {
            return Ok(());
        }
        Reader::new(head)
            .skip_within(MAX_DEPTH - self.depth, |_, _| Ok(()))
            .map_err(ValueError::into_unsendable)
    }

    /// Encodes one of this crate's own types, which passes itself as an object if it can.
    fn take_over<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        let start = self.builder.head.len();
        let (result, handed) = passthrough::receive(|| value.serialize(&mut *self));
        result?;
        let Some(handed) = handed else { return Ok(()) };
        self.builder.head.truncate(start);
        match handed {
            Handed::Bytes(bytes) => self.builder.body(bytes),
            Handed::Encoded(encoded) => {
                self.check_depth(encoded.head())?;
                self.builder.encoded(&encoded)
            }
            Handed::Error(error) => Err(error),
            Handed::Value(value) => value.serialize(self),
        }
    }
}

macro_rules! widened {
    ($($method:ident($from:ty) => $wide:ident($to:ty),)*) => {$(
        #[inline]
        fn $method(self, value: $from) -> Result<(), ValueError> {
            self.$wide(<$to>::from(value))
        }
    )*};
}

impl<'e, 'b> ser::Serializer for &'e mut Encoder<'b> {
    type Ok = ();
    type Error = ValueError;
    type SerializeSeq = Compound<'e, 'b>;
    type SerializeTuple = Compound<'e, 'b>;
    type SerializeTupleStruct = Compound<'e, 'b>;
    type SerializeTupleVariant = Compound<'e, 'b>;
    type SerializeMap = Compound<'e, 'b>;
    type SerializeStruct = Compound<'e, 'b>;
    type SerializeStructVariant = Compound<'e, 'b>;

    fn is_human_readable(&self) -> bool {
        false
    }

    widened! {
        serialize_i8(i8) => serialize_i64(i64),
        serialize_i16(i16) => serialize_i64(i64),
        serialize_i32(i32) => serialize_i64(i64),
        serialize_u8(u8) => serialize_u64(u64),
        serialize_u16(u16) => serialize_u64(u64),
        serialize_u32(u32) => serialize_u64(u64),
        serialize_f32(f32) => serialize_f64(f64),
    }

    fn serialize_bool(self, value: bool) -> Result<(), ValueError> {
        write::bool(self.head(), value);
        Ok(())
    }

    #[inline]
    fn serialize_i64(self, value: i64) -> Result<(), ValueError> {
        write::int(self.head(), value);
        Ok(())
    }

    fn serialize_i128(self, value: i128) -> Result<(), ValueError> {
        self.big_int(&BigInt::from(value))
    }

    #[inline]
    fn serialize_u64(self, value: u64) -> Result<(), ValueError> {
        write::uint(self.head(), value);
        Ok(())
    }

    fn serialize_u128(self, value: u128) -> Result<(), ValueError> {
        self.big_int(&BigInt::from(value))
    }

    fn serialize_f64(self, value: f64) -> Result<(), ValueError> {
        write::float(self.head(), value);
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), ValueError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result<(), ValueError> {
        let len = u32::try_from(value.len()).map_err(|_| too_long("a text"))?;
        write::str_header(self.head(), len);
        self.head().extend_from_slice(value.as_bytes());
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), ValueError> {
        match self.extension.take() {
            Some(ext::BIG_INT) => self.big_int(&BigInt::from_twos_complement(value)),
            Some(RAW) => {
                self.check_depth(value)?;
                self.head().extend_from_slice(value);
                Ok(())
            }
            Some(kind) => self.extension_data(kind, value),
            None => self.byte_string(value),
        }
    }

    fn serialize_none(self) -> Result<(), ValueError> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), ValueError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), ValueError> {
        write::nil(self.head());
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), ValueError> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), ValueError> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<(), ValueError> {
        match name {
            passthrough::BLOB => return self.take_over(value),
            passthrough::ENCODED => {
                self.extension = Some(RAW);
                let result = self.take_over(value);
                self.extension = None;
                return result;
            }
            passthrough::BIG_INT => self.extension = Some(ext::BIG_INT),
            passthrough::DATE_TIME => self.extension = Some(ext::DATE_TIME),
            passthrough::NAIVE_DATE_TIME => self.extension = Some(ext::NAIVE_DATE_TIME),
            _ => {}
        }
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), ValueError> {
        self.open_variant(variant)?;
        value.serialize(&mut *self).map_err(|error| error.at_field(variant))?;
        self.depth -= 1;
        Ok(())
    }

    #[inline]
    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, ValueError> {
        self.open(CompoundKind::List, len)
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, ValueError> {
        self.open(CompoundKind::List, Some(len))
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, ValueError> {
        self.open(CompoundKind::List, Some(len))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, ValueError> {
        self.open_variant(variant)?;
        Ok(self.open(CompoundKind::List, Some(len))?.of_variant(variant))
    }

    #[inline]
    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, ValueError> {
        self.open(CompoundKind::Map, len)
    }

    #[inline]
    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Self::SerializeStruct, ValueError> {
        self.open(CompoundKind::Map, Some(len))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, ValueError> {
        self.open_variant(variant)?;
        Ok(self.open(CompoundKind::Map, Some(len))?.of_variant(variant))
    }
}
