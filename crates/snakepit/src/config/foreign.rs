//! Settings whose struct belongs to another crate, which knows nothing of files.

use std::ops::{Deref, DerefMut};

/// Such a struct. Its keys are listed here, and its fields are reached through it.
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
