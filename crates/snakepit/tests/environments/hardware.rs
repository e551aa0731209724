//! What workers learn about cores and GPUs.

use std::collections::BTreeSet;

use snakepit::environment::Environment;
use snakepit::hardware::{Cpu, Gpus, Threads};
use snakepit::policy::Sizing;
use snakepit::{PoolOptions, Snakepit, Value, args};

use crate::packages::{again, pool, teller};
use crate::support::{Pit, chain, config, soon, until};

const LIMITS: [&str; 5] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
];

async fn variables(pit: &Snakepit, names: &[&str]) -> Vec<Option<String>> {
    let map: Value =
        soon("the call", pit.call("variables", args! { names: names })).await.expect("variables");
    names.iter().map(|name| map.get(name).and_then(Value::as_str).map(str::to_owned)).collect()
}

#[test]
fn numeric_libraries_share_the_cores_unless_variables_say_otherwise() {
    again("hardware::inside_limits_arrive", &[]);
    again(
        "hardware::inside_limits_of_the_host_stay",
        &[("OMP_NUM_THREADS", "5"), ("VECLIB_MAXIMUM_THREADS", "6")],
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs inside the test above"]
async fn inside_limits_arrive() {
    let told = |pool: PoolOptions| async {
        let pit = Pit::start(pool).await;
        let told = variables(&pit, &LIMITS).await;
        pit.end().await;
        told
    };
    let share = (Cpu::look().usable / 2).max(1).to_string();
    let plain = || pool(Environment::new());
    assert_eq!(told(plain().workers(2)).await, vec![Some(share); 5]);
    assert_eq!(told(plain().workers(1)).await, vec![Some(Cpu::look().usable.to_string()); 5]);
    assert_eq!(told(plain().sizing(Sizing::between(1, 100))).await, vec![Some("1".into()); 5]);
    assert_eq!(told(plain().threads(Threads::Each(3))).await, vec![Some("3".into()); 5]);
    assert_eq!(told(plain().threads(Threads::Unlimited)).await, vec![None; 5]);
    let own = snakepit::python(teller().env("OMP_NUM_THREADS", "7")).workers(1);
    let cores = Some(Cpu::look().usable.to_string());
    assert_eq!(told(own).await, [Some("7".into()), None, None, None, cores]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs inside the test above"]
async fn inside_limits_of_the_host_stay() {
    let pit = Pit::start(pool(Environment::new())).await;
    let told = variables(&pit, &LIMITS).await;
    assert_eq!(told, [Some("5".into()), None, None, None, Some("6".into())]);
    pit.end().await;
}

#[test]
fn each_worker_sees_one_of_the_gpus_that_the_host_may_use() {
    again("hardware::inside_one_gpu_each", &[("CUDA_VISIBLE_DEVICES", "4,GPU-5a")]);
    again("hardware::inside_one_gpu_of_amd_each", &[("HIP_VISIBLE_DEVICES", "1,3")]);
}

#[test]
fn more_workers_than_gpus_share_them_evenly_also_after_a_death() {
    again("hardware::inside_more_workers_than_gpus", &[("CUDA_VISIBLE_DEVICES", "0,1")]);
}

/// Returns how many workers have each device.
async fn shares(pit: &Snakepit) -> Vec<(String, usize)> {
    let mut shares = std::collections::BTreeMap::new();
    for worker in pit.pools()[0].status().await.workers {
        *shares.entry(worker.info.device.unwrap_or_else(|| "none".into())).or_default() += 1;
    }
    shares.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs inside the test above"]
async fn inside_more_workers_than_gpus() {
    let share = |device: &str, workers| (device.to_owned(), workers);
    let pit = Pit::start(snakepit::python(teller()).workers(4).gpus(Gpus::OnePerWorker)).await;
    assert_eq!(shares(&pit).await, [share("cuda:0", 2), share("cuda:1", 2)]);
    let dead = crate::support::pids(&pit.pools()[0])[0];
    crate::support::kill(dead);
    until("another one serves", || {
        let pids = crate::support::pids(&pit.pools()[0]);
        pids.len() == 4 && !pids.contains(&dead)
    })
    .await;
    assert_eq!(shares(&pit).await, [share("cuda:0", 2), share("cuda:1", 2)]);
    pit.end().await;
    let pit = Pit::start(snakepit::python(teller()).workers(1).gpus(Gpus::OnePerWorker)).await;
    assert_eq!(shares(&pit).await.len(), 1, "one worker sees one of them");
    pit.end().await;
    let growing = snakepit::python(teller()).sizing(Sizing::between(3, 3)).gpus(Gpus::OnePerWorker);
    let pit = Pit::start(growing).await;
    let shares = shares(&pit).await;
    assert!(shares.len() == 2 && shares.iter().all(|(_, workers)| (1..=2).contains(workers)), "{shares:?}");
    pit.end().await;
}

const SEEN: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "SNAKEPIT_DEVICE", "CUDA_DEVICE_ORDER"];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs inside the test above"]
async fn inside_one_gpu_each() {
    // As many workers as GPUs, since the pool sets no number.
    let pool = snakepit::python(teller()).gpus(Gpus::OnePerWorker);
    let pit = Pit::start(pool).await;
    let stats = pit.pools()[0].status().await;
    let devices: BTreeSet<_> = stats.workers.iter().filter_map(|worker| worker.info.device.clone()).collect();
    assert_eq!(devices.into_iter().collect::<Vec<_>>(), ["cuda:4", "cuda:GPU-5a"]);
    let told = variables(&pit, &SEEN).await;
    let id = told[0].clone().expect("a GPU");
    assert!(["4", "GPU-5a"].contains(&&*id), "{told:?}");
    assert_eq!(told[1..], [Some(format!("cuda:{id}")), None]);
    // When a worker dies of its GPU, no worker gets that GPU for a while.
    let gone: Result<Value, _> = soon("the call", pit.call("die_of_its_gpu", args! {})).await;
    gone.expect_err("it died");
    until("another one serves", || pit.pools()[0].workers().len() == 2).await;
    let stats = pit.pools()[0].status().await;
    assert_eq!(stats.tainted.len(), 1, "{:?}", stats.tainted);
    let left: BTreeSet<_> = stats.workers.iter().filter_map(|worker| worker.info.device.clone()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(!left.iter().any(|device| stats.tainted[0].slot.to_string().contains(device)), "{left:?}");
    pit.end().await;
    let all = Pit::start(snakepit::python(teller()).workers(1).gpus(Gpus::All)).await;
    assert_eq!(variables(&all, &SEEN).await[0].as_deref(), Some("4,GPU-5a"));
    all.end().await;
    let home = tempfile::tempdir().expect("a directory");
    let hidden = snakepit::python(teller()).gpus(Gpus::These(vec!["0".into()]));
    let refused = Snakepit::builder().pool(hidden).custody(config(&home)).start().await.expect_err("hidden");
    assert!(
        chain(&refused).contains("the GPUs are 4, GPU-5a (by CUDA_VISIBLE_DEVICES)"),
        "{}",
        chain(&refused)
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs inside the test above"]
async fn inside_one_gpu_of_amd_each() {
    let pit = Pit::start(snakepit::python(teller()).workers(1).gpus(Gpus::These(vec!["3".into()]))).await;
    let told = variables(&pit, &["HIP_VISIBLE_DEVICES", "SNAKEPIT_DEVICE"]).await;
    assert_eq!(told, [Some("3".into()), Some("hip:3".into())]);
    pit.end().await;
}

/// Needs a network, and prints the duration:
/// `cargo nextest run -p snakepit --test environments --run-ignored only numpy`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "installs numpy, and measures"]
async fn numpy_takes_less_time_when_workers_share_the_cores() {
    let home = tempfile::tempdir().expect("a directory");
    let workers = Cpu::look().usable * 2;
    for (name, threads) in [("shared", Threads::Shared), ("unlimited", Threads::Unlimited)] {
        let environment = Environment::new().requirements(["numpy"]).cache_dir(home.path().join("envs"));
        let pit = Pit::start(pool(environment).workers(workers).threads(threads)).await;
        let multiply = |times: usize| {
            let calls = (0..workers).map(|_| pit.call::<f64>("multiply", args! { size: 700, times: times }));
            futures_util::future::try_join_all(calls.map(IntoFuture::into_future))
        };
        multiply(1).await.expect("loaded");
        let began = std::time::Instant::now();
        multiply(20).await.expect("multiplied");
        println!("{name}: {workers} workers, 20 products each: {:?}", began.elapsed());
        pit.end().await;
    }
}
