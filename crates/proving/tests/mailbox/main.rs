//! Mailboxes: each backend passes the same suite.

mod memory;

mod suite {
    mod memory {
        snakepit_proving::mailbox_conformance!(crate::memory::Memory::default());
    }
}
