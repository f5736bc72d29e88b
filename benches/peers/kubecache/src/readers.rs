//! A store that 50 threads read while one writes: how long each waits.

use std::time::Duration;

use crate::load::Load;
use crate::marks::{Task, order, tell};

/// Of each of the two parts.
const LENGTH: Duration = Duration::from_secs(5);

pub(crate) fn run(task: &Task) {
    tell("up");
    order();
    let mut load = Load::new(task.count.try_into().unwrap(), LENGTH);
    let [full, paced] = match task.way.as_str() {
        "store" => load.of_store(),
        "mutex" => load.of_one_lock(),
        other => panic!("unknown way {other}"),
    };
    let of_1000 = [full.write, paced.write, full.list, full.get].map(|[_, _, p999, _]| p999);
    let [write, paced, list, get] = of_1000;
    tell(&format!("waited {} {write} {paced} {list} {get}", full.rate));
    order();
}
