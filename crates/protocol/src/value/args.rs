//! [`Args`] and the macro [`args!`](crate::args): the arguments of a call.

use std::fmt;

use serde::{Serialize, Serializer};

use super::builder::ValueBuilder;
use super::handover::{self, Handed};
use super::{Encoded, ValueError, blob, write};

/// The arguments of a call, encoded already. The macro [`args!`](crate::args) builds them.
///
/// Wherever arguments are taken, any `Serialize` will do as well: a struct or a map is arguments by name, a tuple or a list
/// is arguments by position, `()` is no arguments, and anything else is one argument.
///
/// An argument that cannot be sent is reported by the call, not by the macro.
#[derive(Clone)]
pub struct Args(Result<Encoded, ValueError>);

impl Args {
    /// Arguments from anything that can be sent.
    pub fn new<T: Serialize + ?Sized>(args: &T) -> Self {
        let encoded = Encoded::encode(args);
        // Nil is `()`, and `()` is no arguments. One argument that is nil is `args![()]`.
        if encoded.as_ref().is_ok_and(Encoded::is_nil) {
            return Self::empty();
        }
        Self(encoded)
    }

    /// No arguments.
    pub fn empty() -> Self {
        Self(Ok(Encoded::empty_map()))
    }

    /// The bytes, or why there are none.
    pub fn into_encoded(self) -> Result<Encoded, ValueError> {
        self.0
    }

    /// The beginning of arguments by name; for the macro.
    #[doc(hidden)]
    #[inline]
    pub fn by_name(count: usize) -> ArgsBuilder {
        let mut builder = Encoded::builder();
        write::map_header(&mut builder.head, count as u32);
        ArgsBuilder { builder, error: None, position: 0 }
    }

    /// The beginning of arguments by position; for the macro.
    #[doc(hidden)]
    #[inline]
    pub fn by_position(count: usize) -> ArgsBuilder {
        let mut builder = Encoded::builder();
        write::array_header(&mut builder.head, count as u32);
        ArgsBuilder { builder, error: None, position: 0 }
    }
}

/// Arguments in the making; for the macro.
#[doc(hidden)]
pub struct ArgsBuilder {
    builder: ValueBuilder,
    error: Option<ValueError>,
    position: usize,
}

impl ArgsBuilder {
    #[must_use]
    #[inline]
    pub fn entry<T: Serialize + ?Sized>(mut self, name: &str, value: &T) -> Self {
        // `stringify!` keeps the mark of a raw identifier, which is not a part of its name.
        let name = name.strip_prefix("r#").unwrap_or(name);
        write::str(&mut self.builder.head, name);
        if let Err(error) = self.value(value) {
            self.error.get_or_insert(error.at_key(&name.into()));
        }
        self
    }

    #[must_use]
    #[inline]
    pub fn next<T: Serialize + ?Sized>(mut self, value: &T) -> Self {
        if let Err(error) = self.value(value) {
            self.error.get_or_insert(error.at_index(self.position));
        }
        self.position += 1;
        self
    }

    #[inline]
    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        match blob::of_bytes(value) {
            Some(bytes) => self.builder.inner_value(&bytes),
            None => self.builder.inner_value(value),
        }
    }

    #[inline]
    pub fn done(self) -> Args {
        match self.error {
            None => Args(Ok(Encoded::finish(self.builder))),
            Some(error) => Args(Err(error)),
        }
    }
}

impl Default for Args {
    fn default() -> Self {
        Self::empty()
    }
}

impl fmt::Debug for Args {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(encoded) => write!(f, "Args({encoded:?})"),
            Err(error) => write!(f, "Args({error})"),
        }
    }
}

impl Serialize for Args {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Ok(encoded) => encoded.serialize(serializer),
            Err(error) => serializer.serialize_newtype_struct(handover::ENCODED, &FailedArgs(error)),
        }
    }
}

struct FailedArgs<'a>(&'a ValueError);

impl Serialize for FailedArgs<'_> {
    /// Our own codec gets the error with its path; others get its text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if handover::give(|| Handed::Error(self.0.clone())) {
            return serializer.serialize_unit();
        }
        Err(serde::ser::Error::custom(self.0))
    }
}

/// The arguments of a call: by name, by position, or none.
///
/// ```
/// use snakepit::args;
///
/// let name = "x";
/// let by_name = args! { a: 1, b: name, list: vec![1, 2], "key with space": 3 };
/// let by_position = args![1, "two"];
/// let none = args! {};
/// # assert_eq!(format!("{by_name:?}"), r#"Args(Encoded({"a":1,"b":"x","list":[1,2],"key with space":3}))"#);
/// # assert_eq!(format!("{by_position:?}"), r#"Args(Encoded([1,"two"]))"#);
/// # assert_eq!(format!("{none:?}"), "Args(Encoded({}))");
/// ```
///
/// Any `Serialize` is a value here; it is borrowed. A `Vec<u8>`, a `&[u8]` and a `Bytes` are byte strings:
///
/// ```
/// use snakepit::args;
///
/// let pixels = vec![0_u8; 3];
/// assert_eq!(format!("{:?}", args! { image: pixels }), r#"Args(Encoded({"image":b"\x00\x00\x00"}))"#);
/// ```
///
/// In a field of a type of yours, serde makes a list of integers of a `Vec<u8>`, which is slow and no byte string:
/// use [`Blob`](crate::value::Blob) there, or `serde_bytes`.
#[macro_export]
macro_rules! args {
    () => {
        $crate::value::Args::empty()
    };
    ($($name:tt : $value:expr),+ $(,)?) => {
        $crate::value::Args::by_name([$($crate::args!(@name $name)),+].len())
            $(.entry($crate::args!(@name $name), &$value))+
            .done()
    };
    (@name $name:ident) => {
        stringify!($name)
    };
    (@name $name:literal) => {
        $name
    };
    ($($value:expr),+ $(,)?) => {
        $crate::value::Args::by_position([$(stringify!($value)),+].len())
            $(.next(&$value))+
            .done()
    };
}
