//! Exits after a delay: `exit CODE MICROSECONDS`.

use std::time::Duration;

use snakepit_proving::deadline::let_pass;
use snakepit_proving::tag::TagMapping;

use crate::process::ReadyDescriptor;

pub(crate) fn run(_worn: &TagMapping, ready: ReadyDescriptor, args: &[&str]) {
    let [code, micros] = args else { panic!("exit CODE MICROSECONDS") };
    ready.tell();
    let_pass(Duration::from_micros(micros.parse().expect("microseconds")));
    std::process::exit(code.parse().expect("a code"));
}
