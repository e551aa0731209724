//! How much of a stream: what may be sent ahead, what was granted, what waits.

/// An amount of a stream, counted twice: few large items fill memory as well as many small ones do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Portion {
    /// So many items.
    pub items: u32,
    /// So many bytes, as the items' payloads have them on the wire.
    pub bytes: u64,
}

impl Portion {
    /// Whether nothing more may be sent while this much is sent and not yet read. One that sends while it has not come
    /// to this exceeds the bytes by less than one item, so that an item of any length passes.
    pub fn reaches(self, credit: Self) -> bool {
        self.items >= credit.items || self.bytes >= credit.bytes
    }

    /// Whether it is worth a grant: at half the credit there are few grants, and the sender does not run dry meanwhile.
    pub(crate) fn is_half_of(self, credit: Self) -> bool {
        self.reaches(Self { items: credit.items.div_ceil(2), bytes: credit.bytes.div_ceil(2) })
    }

    /// Counts an item of so many bytes.
    pub fn add_item(&mut self, bytes: usize) {
        self.items = self.items.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Takes an item of so many bytes off.
    pub fn remove_item(&mut self, bytes: usize) {
        self.items = self.items.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes as u64);
    }
}
