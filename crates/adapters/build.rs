//! Lists the files of the Python SDK, so that the library carries them inside itself; and, where gRPC is wanted, compiles
//! its messages.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where the crate is");
    let sdk = fs::canonicalize(Path::new(&root).join("sdk"))?;
    println!("cargo::rerun-if-changed={}", sdk.display());
    let mut files: Vec<_> = fs::read_dir(&sdk)?.collect::<Result<_, _>>()?;
    files.sort_by_key(fs::DirEntry::file_name);
    let mut list = String::from("[\n");
    // FNV-1a: the name of the directory that the files are put into; nothing is secured by it.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for file in files {
        let path = file.path();
        let name = file.file_name().into_string().expect("the SDK's files have plain names");
        if path.extension().is_none_or(|extension| extension != "py" && extension != "typed") {
            continue;
        }
        println!("cargo::rerun-if-changed={}", path.display());
        for byte in name.bytes().chain([0]).chain(fs::read(&path)?) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let path = path.to_str().expect("the crate has a plain path");
        writeln!(list, "({name:?}, include_str!({path:?})),").expect("writing to a string");
    }
    list.push(']');
    let out = env::var_os("OUT_DIR").expect("cargo says where to write");
    fs::write(Path::new(&out).join("sdk_files.rs"), list)?;
    println!("cargo::rustc-env=SNAKEPIT_SDK_HASH={hash:016x}");
    #[cfg(feature = "grpc")]
    compile_messages(Path::new(&root))?;
    Ok(())
}

#[cfg(feature = "grpc")]
fn compile_messages(root: &Path) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", root.join("snakepit.proto").display());
    let files = protox::compile(["snakepit.proto"], [root]).map_err(io::Error::other)?;
    prost_build::Config::new().bytes(["."]).compile_fds(files)
}
