//! Lists the files of the Python SDK, so that the library carries them inside itself; and, where gRPC is wanted, compiles
//! its messages.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where the crate is");
    let sdk = fs::canonicalize(Path::new(&root).join("sdk"))?;
    println!("cargo::rerun-if-changed={}", sdk.display());
    let mut files = Vec::new();
    collect(&sdk, &mut files)?;
    files.sort();
    let mut list = String::from("[\n");
    // FNV-1a: the name of the directory that the files are put into; nothing is secured by it.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for path in files {
        let name = path.strip_prefix(&sdk).expect("below the SDK").to_str();
        let name = name.expect("the SDK's files have plain names");
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

/// Collects the files of a package and of the packages in it.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.join("__init__.py").is_file() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "py" || extension == "typed") {
            println!("cargo::rerun-if-changed={}", path.display());
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(feature = "grpc")]
fn compile_messages(root: &Path) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", root.join("snakepit.proto").display());
    let files = protox::compile(["snakepit.proto"], [root]).map_err(io::Error::other)?;
    prost_build::Config::new().bytes(["."]).compile_fds(files)
}
