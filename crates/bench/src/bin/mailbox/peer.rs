//! The Redis mailbox of weakincentives, if it is installed.

use std::path::Path;
use std::process::Command;

use snakepit_bench::BenchResult;
use snakepit_bench::redis::RedisServer;

const PROGRAM: &str = "\
import sys, time, redis
from weakincentives.contrib.mailbox import RedisMailbox
box = RedisMailbox(name='bench', client=redis.Redis(unix_socket_path=sys.argv[1]), body_type=str)
count = int(sys.argv[2])
box.send('x' * 100)
began = time.perf_counter()
for _ in range(count):
    box.send('x' * 100)
print(count / (time.perf_counter() - began))
box.close()
";

/// Returns sends per second, or the reason why they are not measured.
pub(crate) fn sends(dir: &Path, messages: usize) -> BenchResult<Result<f64, String>> {
    let Some(python) = std::env::var_os("SNAKEPIT_BENCH_WEAKINCENTIVES") else {
        return Ok(Err("weakincentives is not installed".to_owned()));
    };
    let redis = match RedisServer::start(dir) {
        Ok(redis) => redis,
        Err(why) => return Ok(Err(format!("redis-server: {why}"))),
    };
    let output =
        Command::new(python).args(["-c", PROGRAM]).arg(redis.socket()).arg(messages.to_string()).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?))
}
