//! How long things took, counted as a histogram of Prometheus.

use std::fmt::Write as _;
use std::time::Duration;

/// A claim is a short transaction: of one that takes a second, somebody else had the queue.
const OF_ANSWERS: [Duration; 10] = [
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(10),
];

/// A run that finds a free worker waits for a look; one that does not waits for whatever is under way.
const OF_WAITS: [Duration; 8] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_mins(1),
    Duration::from_mins(5),
    Duration::from_mins(15),
    Duration::from_hours(1),
];

/// What was counted.
#[derive(Debug, Clone)]
pub(super) struct Spans {
    bounds: &'static [Duration],
    /// How many took no longer than each bound.
    within: Vec<u64>,
    count: u64,
    sum: Duration,
}

impl Spans {
    /// Of what a database answers.
    pub(super) fn of_answers() -> Self {
        Self::within(&OF_ANSWERS)
    }

    /// Of what waits for a worker.
    pub(super) fn of_waits() -> Self {
        Self::within(&OF_WAITS)
    }

    fn within(bounds: &'static [Duration]) -> Self {
        Self { bounds, within: vec![0; bounds.len()], count: 0, sum: Duration::ZERO }
    }

    /// Something took so long.
    pub(super) fn note(&mut self, span: Duration) {
        for (bound, within) in self.bounds.iter().zip(&mut self.within) {
            *within += u64::from(span <= *bound);
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(span);
    }

    /// Writes it in the text format that Prometheus reads.
    pub(super) fn write(&self, page: &mut String, name: &str, help: &str) {
        let mut text = format!("# HELP {name} {help}\n# TYPE {name} histogram\n");
        let written = self
            .bounds
            .iter()
            .zip(&self.within)
            .try_for_each(|(bound, within)| writeln!(text, "{name}_bucket{{le=\"{}\"}} {within}", bound.as_secs_f64()))
            .and_then(|()| {
                let (count, sum) = (self.count, self.sum.as_secs_f64());
                writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}")
            });
        debug_assert!(written.is_ok(), "a string takes everything");
        page.push_str(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_has_what_took_no_longer() {
        let mut spans = Spans::of_waits();
        for millis in [0, 500, 501, 4_000, 7_200_000] {
            spans.note(Duration::from_millis(millis));
        }
        let mut page = String::new();
        spans.write(&mut page, "x", "How long");
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(
            lines[..5],
            [
                "# HELP x How long",
                "# TYPE x histogram",
                "x_bucket{le=\"0.5\"} 2",
                "x_bucket{le=\"1\"} 3",
                "x_bucket{le=\"5\"} 4",
            ]
        );
        assert_eq!(lines[9..], ["x_bucket{le=\"3600\"} 4", "x_bucket{le=\"+Inf\"} 5", "x_sum 7205.001", "x_count 5",]);
        for spans in [Spans::of_answers(), Spans::of_waits()] {
            assert!(spans.bounds.is_sorted());
        }
    }
}
