//! Settings whose struct belongs to another crate that has no file support.

use std::ops::{Deref, DerefMut};

/// A wrapper around such a struct. Its keys are listed here, and it dereferences to the struct.
#[derive(Clone, Debug, Default)]
pub(super) struct Foreign<T>(pub(super) T);

impl<T> Deref for Foreign<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Foreign<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
