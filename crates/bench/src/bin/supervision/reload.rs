//! How many calls a pool of twenty answers while all its workers are replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use snakepit::{Snakepit, Value, args};
use snakepit_bench::pool::python_pool;
use snakepit_bench::{BenchResult, SampleSet};

const WORKERS: usize = 20;
/// The length of the intervals in which throughput is measured.
const PIECE: Duration = Duration::from_millis(500);
/// The minimum share of the throughput that must be left.
const TARGET: f64 = 0.8;

pub(crate) async fn run(rounds: usize) -> BenchResult<()> {
    println!(
        "\n| reload of {WORKERS} workers under load, pieces of {PIECE:?} | before | lowest | least of it | took |"
    );
    println!("|---|---|---|---|---|");
    let loads = [
        ("calls that wait 10 ms each, a caller per worker", "waits", WORKERS),
        ("calls that compute, both cores busy", "computes", 4),
    ];
    for (name, command, callers) in loads {
        let pit = Snakepit::builder().pool(python_pool().workers(WORKERS)).start().await?;
        let load = CallLoad::start(&pit, command, callers);
        let (mut levels, mut lowest, mut took) =
            (SampleSet::default(), SampleSet::default(), SampleSet::default());
        for _ in 0..rounds.div_ceil(5) {
            let mut before = SampleSet::default();
            for _ in 0..6 {
                before.push(load.piece().await);
            }
            let served = pit.pools()[0].clone();
            let began = std::time::Instant::now();
            let reload = tokio::spawn(async move { served.reload().await });
            let mut least = f64::INFINITY;
            while !reload.is_finished() {
                least = least.min(load.piece().await);
            }
            reload.await??;
            took.push_time(began.elapsed());
            levels.push(before.median());
            lowest.push(least);
        }
        let ratio = lowest.median() / levels.median();
        let verdict = if ratio >= TARGET { "as wanted" } else { "MISS" };
        println!(
            "| {name} | {:.0}/s | {:.0}/s | {ratio:.2}× ({verdict}) | {:.1} s |",
            levels.median(),
            lowest.median(),
            took.median()
        );
        load.end().await?;
        pit.stop().await;
    }
    Ok(())
}

struct CallLoad {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU32>,
    callers: Vec<tokio::task::JoinHandle<Result<(), String>>>,
}

impl CallLoad {
    fn start(pit: &Snakepit, command: &'static str, callers: usize) -> Self {
        let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let caller = |_| {
            let (pit, stop, served) = (pit.clone(), Arc::clone(&stop), Arc::clone(&served));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let answer = pit.call::<Value>(command, args! {}).await;
                    answer.map_err(|error| error.to_string())?;
                    served.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        };
        Self { callers: (0..callers).map(caller).collect(), stop, served }
    }

    /// Returns the calls per second in the next interval.
    async fn piece(&self) -> f64 {
        let (began, before) = (std::time::Instant::now(), self.served.load(Ordering::Relaxed));
        tokio::time::sleep(PIECE).await;
        f64::from(self.served.load(Ordering::Relaxed) - before) / began.elapsed().as_secs_f64()
    }

    async fn end(self) -> BenchResult<()> {
        self.stop.store(true, Ordering::Relaxed);
        for caller in self.callers {
            caller.await??;
        }
        Ok(())
    }
}
