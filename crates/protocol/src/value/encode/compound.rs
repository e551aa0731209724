//! Lists, maps and variants under construction: their headers and counts, and the position of an error.

use serde::ser::{self, Serialize};

use super::Encoder;
use crate::value::builder::too_long;
use crate::value::read::Reader;
use crate::value::{ValueError, write};

#[derive(Clone, Copy)]
pub(super) enum CompoundKind {
    List,
    Map,
}

impl CompoundKind {
    #[inline]
    pub(super) fn write(self, out: &mut Vec<u8>, len: u32) {
        match self {
            Self::List => write::array_header(out, len),
            Self::Map => write::map_header(out, len),
        }
    }
}

/// A list or a map that is being written.
pub(in crate::value) struct Compound<'e, 'b> {
    encoder: &'e mut Encoder<'b>,
    shape: CompoundKind,
    /// The position of the header.
    start: usize,
    /// The position of the first entry.
    first: usize,
    promised: u32,
    count: usize,
    /// The position of the key of the current entry.
    key: usize,
    /// The enum variant whose content this is. The variant is the single entry of a map around the content.
    variant: Option<&'static str>,
}

impl<'e, 'b> Compound<'e, 'b> {
    /// `start` is the position of the header, which is already written with the length `promised`.
    #[inline]
    pub(super) fn new(
        encoder: &'e mut Encoder<'b>,
        shape: CompoundKind,
        start: usize,
        promised: u32,
    ) -> Self {
        let first = encoder.builder.head.len();
        Self { encoder, shape, start, first, promised, count: 0, key: 0, variant: None }
    }
}

impl Compound<'_, '_> {
    pub(super) fn of_variant(self, variant: &'static str) -> Self {
        Self { variant: Some(variant), ..self }
    }

    #[cold]
    fn in_variant(&self, error: ValueError) -> ValueError {
        match self.variant {
            Some(variant) => error.at_field(variant),
            None => error,
        }
    }

    #[inline]
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        value.serialize(&mut *self.encoder).map_err(|error| self.in_variant(error.at_index(self.count)))?;
        self.count += 1;
        Ok(())
    }

    #[inline]
    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), ValueError> {
        ser::Serializer::serialize_str(&mut *self.encoder, name)?;
        value.serialize(&mut *self.encoder).map_err(|error| self.in_variant(error.at_field(name)))?;
        self.count += 1;
        Ok(())
    }

    #[inline]
    fn close(self) -> Result<(), ValueError> {
        self.encoder.depth -= if self.variant.is_some() { 2 } else { 1 };
        if self.count == self.promised as usize { Ok(()) } else { self.correct_header() }
    }

    /// Writes the real length, because the promised one was unknown or wrong. A frame with a wrong length would be
    /// misread.
    #[cold]
    fn correct_header(self) -> Result<(), ValueError> {
        let count = u32::try_from(self.count).map_err(|_| too_long("a list or a map"))?;
        let mut header = Vec::with_capacity(5);
        self.shape.write(&mut header, count);
        self.encoder.head().splice(self.start..self.first, header);
        Ok(())
    }
}

/// Implements all kinds of lists, which differ only in the name of the method.
macro_rules! lists {
    ($($kind:ident: $method:ident),*) => {$(
        impl ser::$kind for Compound<'_, '_> {
            type Ok = ();
            type Error = ValueError;

            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
                self.element(value)
            }

            fn end(self) -> Result<(), ValueError> {
                self.close()
            }
        }
    )*};
}

lists! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field
}

impl ser::SerializeMap for Compound<'_, '_> {
    type Ok = ();
    type Error = ValueError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), ValueError> {
        self.key = self.encoder.builder.head.len();
        key.serialize(&mut *self.encoder)?;
        Reader::new(&self.encoder.builder.head[self.key..]).check_key().map_err(ValueError::into_unsendable)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        if let Err(error) = value.serialize(&mut *self.encoder) {
            return Err(error.at_key(&Reader::key_for_path(&self.encoder.builder.head[self.key..])));
        }
        self.count += 1;
        Ok(())
    }

    fn end(self) -> Result<(), ValueError> {
        self.close()
    }
}

/// Implements structs, and variants with named fields.
macro_rules! structs {
    ($($kind:ident),*) => {$(
        impl ser::$kind for Compound<'_, '_> {
            type Ok = ();
            type Error = ValueError;

            #[inline]
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), ValueError> {
                self.field(name, value)
            }

            fn end(self) -> Result<(), ValueError> {
                self.close()
            }
        }
    )*};
}

structs! { SerializeStruct, SerializeStructVariant }
