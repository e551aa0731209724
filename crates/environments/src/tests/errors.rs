//! The texts of all errors of environments and GPUs.

use std::io;
use std::time::Duration;

use snakepit_custody::{DirError, ExitStatus, SpawnError};
use snakepit_error_texts::{ErrorTexts, every_variant};

use crate::EnvironmentError;
use crate::error::{cannot, hint};
use crate::hardware::GpuError;

#[test]
fn every_error_says_the_thing_the_place_and_the_way_out() {
    let mut texts = ErrorTexts::new();
    errors_of_environments(&mut texts);
    errors_of_gpus(&mut texts);
    insta::assert_snapshot!(texts);
}

fn errors_of_environments(texts: &mut ErrorTexts) {
    let unreachable = vec!["error sending request for url".to_owned()];
    every_variant!(texts, EnvironmentError {
        NoInterpreter => [EnvironmentError::NoInterpreter("/opt/python/bin/python".into())],
        NotInPath => [EnvironmentError::NotInPath("pypy".into()), EnvironmentError::NotInPath("3.12".into())],
        NotActive => [EnvironmentError::NotActive("/srv/app/old-venv".into())],
        NoVersion => [EnvironmentError::NoVersion {
            version: "3.8".into(),
            looked: "PATH, uv's and pyenv's versions".into(),
        }],
        NoEnvironment => [EnvironmentError::NoEnvironment("venv".into())],
        NotOurs => [EnvironmentError::NotOurs("venv".into())],
        NotPython => [EnvironmentError::NotPython {
            python: "/bin/true".into(),
            status: ExitStatus::Code(0),
            output: Vec::new(),
        }],
        Unreadable => [EnvironmentError::Unreadable {
            path: "requirements.txt".into(),
            source: io::Error::from_raw_os_error(2),
        }],
        UnknownProject => [EnvironmentError::UnknownProject("package.json".into())],
        WrongPython => [EnvironmentError::WrongPython {
            path: "pyproject.toml".into(),
            needs: ">=3.12".into(),
            python: "/usr/bin/python3".into(),
            version: "3.11.7".into(),
        }],
        NeedsUv => [EnvironmentError::NeedsUv {
            path: "uv.lock".into(),
            why: "is not in PATH: install it",
            instead: "uv export -o requirements.txt",
        }],
        NoUv => [EnvironmentError::NoUv],
        Failed => [EnvironmentError::Failed {
            step: "uv pip install".into(),
            status: ExitStatus::Code(2),
            hint: hint(&unreachable),
            output: unreachable,
        }],
        Timeout => [EnvironmentError::Timeout {
            step: "pip install".into(),
            after: Duration::from_mins(30),
            output: vec!["Downloading torch-2.9.0.whl (888.1 MB)".into()],
        }],
        Changed => [EnvironmentError::Changed],
        NoPlace => [EnvironmentError::NoPlace],
        Foreign => [EnvironmentError::Foreign {
            dir: "/srv/shared/python".into(),
            source: DirError::WritableByOthers { path: "/srv/shared".into(), mode: 0o777 },
        }],
        Place => [
            cannot("write", "/home/ann/.cache/snakepit/envs/1")(io::Error::from_raw_os_error(28)),
            cannot("create", "/home/ann/.cache/snakepit")(io::Error::from_raw_os_error(13)),
        ],
        Spawn => [EnvironmentError::Spawn {
            step: "uv venv".into(),
            source: SpawnError::NotFound { program: "uv".into() },
        }],
        Runtime => [EnvironmentError::Runtime],
    });
}

fn errors_of_gpus(texts: &mut ErrorTexts) {
    every_variant!(texts, GpuError {
        None => [
            GpuError::None { variable: None },
            GpuError::None { variable: Some("CUDA_VISIBLE_DEVICES") },
        ],
        EmptyList => [GpuError::EmptyList],
        Unknown => [
            GpuError::Unknown { id: "2".into(), known: vec!["0".into(), "1".into()], variable: None },
            GpuError::Unknown {
                id: "2".into(),
                known: vec!["0".into(), "1".into()],
                variable: Some("CUDA_VISIBLE_DEVICES"),
            },
        ],
        Helper => [GpuError::Helper(EnvironmentError::Runtime)],
    });
}
