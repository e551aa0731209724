//! Mailboxes: each backend passes the same suite, keeps the same rules under load, and those that are broken on purpose are
//! caught.

mod broken;
mod caught;
mod load;
mod memory;
mod model;

mod suite {
    mod memory {
        snakepit_proving::mailbox_conformance!(crate::memory::Memory::default());
    }
}
