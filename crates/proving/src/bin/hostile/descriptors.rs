//! Writes the descriptors that it inherited to a file: `descriptors FILE`.

use std::fs;

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor, args: &[&str]) {
    let [file] = args else { panic!("descriptors FILE") };
    let entries = fs::read_dir("/proc/self/fd").expect("/proc/self/fd");
    let mut links = Vec::new();
    for entry in entries.map(|entry| entry.expect("a descriptor").path()) {
        let number = entry.file_name().expect("a number").to_string_lossy().into_owned();
        let link = fs::read_link(&entry).unwrap_or_default();
        // This process itself opened the tag and the directory that it reads.
        let own = number == worn.fd().to_string() || link.ends_with("fd");
        if !own {
            links.push(format!("{number} {}", link.display()));
        }
    }
    fs::write(file, links.join("\n")).expect("write the list");
    ready.tell();
    process::rest(worn);
}
