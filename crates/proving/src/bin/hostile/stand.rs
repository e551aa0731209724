//! Does nothing until it is told to exit.

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor) {
    ready.tell();
    process::rest(worn);
}
