//! [`Args`] and the macro [`args!`](crate::args): the arguments of a call.

use std::fmt;

use serde::{Serialize, Serializer};

use super::builder::ValueBuilder;
use super::passthrough::{self, Handed};
use super::scalar::blob;
use super::{Encoded, ValueError, write};

/// The arguments of a call in encoded form. The macro [`args!`](crate::args) builds them.
///
/// A method that takes arguments accepts any `Serialize`: a struct or a map holds arguments by name, a tuple or a list
/// holds arguments by position, `()` means no arguments, and anything else is a single argument.
///
/// If an argument cannot be sent, the call returns the error, not the macro.
///
/// ```no_run
/// use snakepit::{CallError, Snakepit, args};
///
/// # async fn example(pit: snakepit::Snakepit) -> Result<(), CallError> {
/// let sum: i64 = pit.call("add", args! { a: 1, b: 2 }).await?;
/// let same: i64 = pit.call("add", args![1, 2]).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Args(Result<Encoded, ValueError>);

impl Args {
    /// Encodes the arguments of a call.
    pub fn new<T: Serialize + ?Sized>(args: &T) -> Self {
        let encoded = Encoded::encode(args);
        // `()` is encoded as nil and means no arguments. `args![()]` is one argument that is nil.
        if encoded.as_ref().is_ok_and(Encoded::is_nil) {
            return Self::empty();
        }
        Self(encoded)
    }

    /// Returns the arguments of a call that has none.
    pub fn empty() -> Self {
        Self(Ok(Encoded::empty_map()))
    }

    /// Returns the encoded arguments, or the error of the argument that cannot be sent.
    pub fn into_encoded(self) -> Result<Encoded, ValueError> {
        self.0
    }

    /// Starts arguments by name. Used by the macro.
    #[doc(hidden)]
    #[inline]
    pub fn by_name(count: usize) -> ArgsBuilder {
        let mut builder = Encoded::builder();
        write::map_header(&mut builder.head, count as u32);
        ArgsBuilder { builder, error: None, position: 0 }
    }

    /// Starts arguments by position. Used by the macro.
    #[doc(hidden)]
    #[inline]
    pub fn by_position(count: usize) -> ArgsBuilder {
        let mut builder = Encoded::builder();
        write::array_header(&mut builder.head, count as u32);
        ArgsBuilder { builder, error: None, position: 0 }
    }
}

/// A builder of arguments. Used by the macro.
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
        // `stringify!` keeps the `r#` of a raw identifier, which is not part of the name.
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
            Err(error) => serializer.serialize_newtype_struct(passthrough::ENCODED, &FailedArgs(error)),
        }
    }
}

struct FailedArgs<'a>(&'a ValueError);

impl Serialize for FailedArgs<'_> {
    /// This crate's codec gets the error with its path. Other formats get only the text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if passthrough::give(|| Handed::Error(self.0.clone())) {
            return serializer.serialize_unit();
        }
        Err(serde::ser::Error::custom(self.0))
    }
}

/// Builds the arguments of a call: by name, by position, or none.
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
/// The macro borrows its values, which can be any `Serialize`. A `Vec<u8>`, a `&[u8]` and a `Bytes` become byte
/// strings:
///
/// ```
/// use snakepit::args;
///
/// let pixels = vec![0_u8; 3];
/// assert_eq!(format!("{:?}", args! { image: pixels }), r#"Args(Encoded({"image":b"\x00\x00\x00"}))"#);
/// ```
///
/// In a field of your own type, serde turns a `Vec<u8>` into a list of integers, which is slow and is not a byte
/// string. Use [`Blob`](crate::value::Blob) or `serde_bytes` there.
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
