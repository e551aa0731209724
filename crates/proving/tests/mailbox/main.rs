//! Mailboxes: each backend passes the same suite, keeps the same rules under load, and those that are broken on purpose are
//! caught.

mod broken;
mod caught;
mod load;
mod memory;
mod model;
mod sqlite;

mod suite {
    mod memory {
        snakepit_proving::mailbox_conformance!(crate::memory::Memory::default());
    }

    mod sqlite {
        snakepit_proving::mailbox_conformance!(crate::sqlite::Sqlite::new());
    }
}
