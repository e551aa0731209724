//! Hostile workers: one program with one hostile behaviour per module.
//!
//! `hostile KIND TAG READY [ARGS…]` maps the tag, misbehaves, and reports that it is ready. Every process that it
//! starts inherits the descriptor READY, writes a byte to it once it is set up, and closes it. The end of the stream
//! means that all processes are set up.

mod again;
mod bare;
mod bomb;
mod breed;
mod chains;
mod credentials;
mod daemon;
mod deaf;
mod descriptors;
mod eater;
mod elevated;
mod enter;
mod exit;
mod family;
mod heir;
mod leave;
mod orphan;
mod process;
mod seize;
mod shed;
mod signaller;
mod stand;
mod stopped;
mod storm;
mod subgroup;
mod undumpable;

use std::path::Path;

use process::ReadyDescriptor;
use snakepit_proving::tag::TagMapping;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["innocent"] => process::rest_untagged(),
        ["again", tag, ready, kind] => again::arrive(tag, ready, kind),
        ["become-root", tag, ready] => elevated::become_root(tag, ready),
        [kind, tag, ready, ref rest @ ..] => {
            let worn = TagMapping::put_on(Path::new(tag)).expect("put the tag on");
            start(kind, &worn, ReadyDescriptor::parse(ready), rest);
        }
        _ => panic!("hostile KIND TAG READY [ARGS…]"),
    }
}

fn start(kind: &str, worn: &TagMapping, ready: ReadyDescriptor, args: &[&str]) {
    match kind {
        "stand" => stand::run(worn, ready),
        "deaf" => deaf::run(worn, ready),
        "family" => family::run(worn, ready),
        "heir" => heir::run(worn, ready),
        "daemon" => daemon::run(worn, ready),
        "shed" => shed::run(worn, ready),
        "orphan" => orphan::run(worn, &ready),
        "chains" => chains::run(worn, ready),
        "bomb" => bomb::run(worn, &ready, args),
        "breed" => breed::run(worn, ready, args),
        "elevated" => elevated::run(worn, ready, args),
        "seize" => seize::run(worn, ready, args),
        "signaller" => signaller::run(worn, ready),
        "stopped" => stopped::run(worn, ready),
        "credentials" => credentials::run(worn, ready),
        "leave" => leave::run(worn, ready),
        "eater" => eater::run(worn, ready),
        "exit" => exit::run(worn, ready, args),
        "subgroup" => subgroup::run(worn, ready, args),
        "enter" => enter::run(worn, ready),
        "bare" => bare::run(worn, ready),
        "undumpable" => undumpable::run(worn, ready),
        "storm" => storm::run(worn, ready, args),
        "descriptors" => descriptors::run(worn, ready, args),
        _ => panic!("no such kind of trouble: {kind}"),
    }
}
