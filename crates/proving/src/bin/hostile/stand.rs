//! No trouble at all: stands there until it is told to go.

use snakepit_proving::tag::Worn;

use crate::process::{self, Ready};

pub(crate) fn run(worn: &Worn, ready: Ready) {
    ready.tell();
    process::rest(worn);
}
