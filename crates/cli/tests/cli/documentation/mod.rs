//! The README and the pages of `docs/`.

mod readme;
mod snippets;
