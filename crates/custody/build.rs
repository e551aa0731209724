//! Builds the keeper, a separate program that uses only std, so that the library can embed it as bytes.
//!
//! The keeper is not a separate crate: users add one dependency and install nothing else, and a large host program is
//! not loaded a second time.
//!
//! There are two keepers: one for Linux, and a portable one for other Unixes. `--cfg snakepit_portable` selects the
//! portable one on Linux, too, so that it can be tested there. The library's own code checks `cfg(portable)`.

#[path = "src/process/digest.rs"]
mod digest;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn main() {
    println!("cargo::rerun-if-changed=src/keeper");
    println!("cargo::rerun-if-changed=src/portable");
    println!("cargo::rerun-if-changed=src/link/wire.rs");
    println!("cargo::rerun-if-changed=src/failpoint");
    println!("cargo::rerun-if-changed=src/process/proc_stat.rs");
    println!("cargo::rerun-if-changed=src/ledger/record.rs");
    println!("cargo::rerun-if-env-changed=SNAKEPIT_CHECK_ONLY");
    println!("cargo::rustc-check-cfg=cfg(portable)");
    if let Some(sentence) = unsupported() {
        // Reported here, before hundreds of errors about missing system calls.
        println!("cargo::error={sentence}");
        return;
    }
    let keeper = KeeperKind::chosen();
    if keeper == KeeperKind::Portable {
        println!("cargo::rustc-cfg=portable");
    }
    let out = PathBuf::from(var("OUT_DIR")).join("snakepit-keeper");
    if env::var_os("SNAKEPIT_CHECK_ONLY").is_some() {
        // For `cargo check` on a system whose linker is missing. The result must not be run.
        assert!(
            env::var("PROFILE").is_ok_and(|profile| profile == "debug"),
            "a check must not be a release build"
        );
        std::fs::write(&out, b"").unwrap_or_else(|error| panic!("cannot write {}: {error}", out.display()));
    } else {
        build_somehow(keeper, &out);
    }
    let program =
        std::fs::read(&out).unwrap_or_else(|error| panic!("cannot read {}: {error}", out.display()));
    println!("cargo::rustc-env=SNAKEPIT_KEEPER_HASH={:016x}", digest::fnv1a(program));
}

/// Returns why the library cannot be built for the target, or `None` if it can.
fn unsupported() -> Option<&'static str> {
    match var("CARGO_CFG_TARGET_OS").as_str() {
        "linux" | "macos" | "freebsd" => None,
        "windows" => {
            Some("snakepit relies on Unix process groups, sessions and pidfds; Windows is not supported")
        }
        _ => Some(
            "snakepit supports Linux, macOS and FreeBSD; to support another Unix, add its constants to src/portable/libc_abi.rs and process_state.rs",
        ),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum KeeperKind {
    Linux,
    Portable,
}

impl KeeperKind {
    fn chosen() -> Self {
        let linux = var("CARGO_CFG_TARGET_OS") == "linux";
        let asked = env::var_os("CARGO_CFG_SNAKEPIT_PORTABLE").is_some();
        if linux && !asked { Self::Linux } else { Self::Portable }
    }

    fn source(self) -> &'static str {
        match self {
            Self::Linux => "src/keeper/main.rs",
            Self::Portable => "src/portable/keeper/main.rs",
        }
    }
}

fn build_somehow(keeper: KeeperKind, out: &Path) {
    if keeper == KeeperKind::Linux {
        if build(keeper, out, Linking::Static).status.success() {
            return;
        }
        // Without a static C library, a dynamically linked keeper does the same with more memory.
        println!(
            "cargo::warning=the keeper is linked dynamically; a static libc makes it smaller and faster"
        );
    }
    let built = build(keeper, out, Linking::Dynamic);
    assert!(
        built.status.success(),
        "the keeper could not be built with {}:\n{}",
        var("RUSTC"),
        String::from_utf8_lossy(&built.stderr)
    );
}

#[derive(Clone, Copy, PartialEq)]
enum Linking {
    Static,
    Dynamic,
}

#[expect(clippy::disallowed_methods, reason = "a build script has no run that could start the compiler")]
fn build(keeper: KeeperKind, out: &Path, linking: Linking) -> Output {
    let mut rustc = Command::new(var("RUSTC"));
    rustc
        .args(["--crate-name", "snakepit_keeper", "--crate-type", "bin", "--edition", "2024"])
        .args(["-C", "opt-level=2", "-C", "panic=abort", "-C", "lto=fat", "-C", "codegen-units=1"])
        .args(["--cap-lints", "allow"])
        .args(["--target", &var("TARGET")])
        .arg("-o")
        .arg(out)
        .arg(Path::new(&var("CARGO_MANIFEST_DIR")).join(keeper.source()));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={linker}"));
    }
    if env::var_os("CARGO_FEATURE_FAILPOINTS").is_some() {
        rustc.args(["--cfg", "feature=\"failpoints\""]);
    }
    if var("CARGO_CFG_TARGET_VENDOR") != "apple" {
        // Apple's linker signs the program, and stripping it afterwards breaks the signature.
        rustc.args(["-C", "strip=symbols"]);
    }
    if linking == Linking::Static {
        rustc.args(["-C", "target-feature=+crt-static"]);
    }
    rustc.output().unwrap_or_else(|error| panic!("cannot run {}: {error}", var("RUSTC")))
}

fn var(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
