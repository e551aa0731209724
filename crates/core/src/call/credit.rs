//! Amounts of a stream: what may be sent in advance, what was granted, and what waits.

/// An amount of a stream, counted in items and in bytes: a few large items fill memory as much as many small ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Portion {
    /// The number of items.
    pub items: u32,
    /// The number of bytes, counted as the items' payloads on the wire.
    pub bytes: u64,
}

impl Portion {
    /// Reports whether a sender must stop while this amount is sent and not yet read. A sender that stops here exceeds
    /// the bytes by less than one item, so an item of any length passes.
    pub fn reaches(self, credit: Self) -> bool {
        self.items >= credit.items || self.bytes >= credit.bytes
    }

    /// Reports whether this amount is worth a grant. At half of the credit, grants are rare and the sender does not run
    /// out of credit.
    pub(crate) fn is_half_of(self, credit: Self) -> bool {
        self.reaches(Self { items: credit.items.div_ceil(2), bytes: credit.bytes.div_ceil(2) })
    }

    /// Adds an item of this many bytes.
    pub fn add_item(&mut self, bytes: usize) {
        self.items = self.items.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Adds another amount.
    pub fn add(&mut self, more: Self) {
        self.items = self.items.saturating_add(more.items);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }

    /// Removes an amount.
    pub fn remove(&mut self, amount: Self) {
        self.items = self.items.saturating_sub(amount.items);
        self.bytes = self.bytes.saturating_sub(amount.bytes);
    }
}
