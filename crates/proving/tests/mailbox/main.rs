//! Mailboxes: each backend passes the same suite.

mod memory;
mod sqlite;

mod suite {
    mod memory {
        snakepit_proving::mailbox_conformance!(crate::memory::Memory::default());
    }

    mod sqlite {
        snakepit_proving::mailbox_conformance!(crate::sqlite::Sqlite::new());
    }
}
