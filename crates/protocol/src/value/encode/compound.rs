//! Lists, maps and variants in the making: headers, counts, and the place of an error.

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
    /// Where its header stands.
    start: usize,
    /// Where its first entry stands.
    first: usize,
    promised: u32,
    count: usize,
    /// Where the key of the entry in work stands.
    key: usize,
    /// The variant of an enum whose content this is: the one entry of a map around it.
    variant: Option<&'static str>,
}

impl<'e, 'b> Compound<'e, 'b> {
    /// `start` is where its header stands, which is written already and says `promised`.
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

    /// The length was unknown or wrong; a frame with a wrong one would be read as something else.
    #[cold]
    fn correct_header(self) -> Result<(), ValueError> {
        let count = u32::try_from(self.count).map_err(|_| too_long("a list or a map"))?;
        let mut header = Vec::with_capacity(5);
        self.shape.write(&mut header, count);
        self.encoder.head().splice(self.start..self.first, header);
        Ok(())
    }
}

/// Lists of all kinds: their entries differ only in the method's name.
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

/// Structs, and variants with named fields.
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
