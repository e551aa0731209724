//! Mailboxes: each backend passes the same suite and keeps the same rules under load, and broken backends are detected.

mod broken;
mod detection;
mod load;
mod memory;
mod model;
mod outside;
mod sqlite;

mod suite {
    mod memory {
        snakepit::mailbox_conformance_tests!(crate::memory::MemoryFixture::default());
    }

    mod sqlite {
        snakepit::mailbox_conformance_tests!(crate::sqlite::SqliteFixture::new());
    }
}
