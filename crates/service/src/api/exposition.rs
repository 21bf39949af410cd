//! The text formats of Prometheus: the plain one (0.0.4), which every reader of metrics understands, and OpenMetrics 1.0.
//!
//! Owns the choice between them, the headers of a metric, and escaping. Never knows a metric. By hand, because the library that
//! we had writes neither the plain format nor summaries ([decision 19](../../../../docs/decisions/0019-what-stays-by-hand.md)).

use std::fmt::{self, Write as _};

/// Names and values of labels.
pub type Labels = Vec<(&'static str, String)>;

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text format of Prometheus, version 0.0.4.
    Plain,
    /// OpenMetrics 1.0, for who asks for it.
    OpenMetrics,
}

impl Format {
    /// What a client with this `Accept` header gets: OpenMetrics if the client names it and does not prefer plain text.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let weight = |kind: &str| accept.split(',').filter_map(|range| weight_of(range, kind)).fold(0.0, f32::max);
        let open = weight("application/openmetrics-text");
        if open > 0.0 && open >= weight("text/plain") { Self::OpenMetrics } else { Self::Plain }
    }

    /// The content type of the answer.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The weight (0 to 1) of a range of an `Accept` header, if it is for `kind`.
fn weight_of(range: &str, kind: &str) -> Option<f32> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(kind) {
        return None;
    }
    let weight = parts.find_map(|part| part.strip_prefix("q="));
    // A weight that is no number is no wish.
    Some(weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0)))
}

/// A page of metrics.
#[derive(Debug)]
pub struct Page {
    format: Format,
    text: String,
}

impl Page {
    /// An empty one.
    #[must_use]
    pub const fn new(format: Format) -> Self {
        Self { format, text: String::new() }
    }

    /// A value that goes up and down. Without values nothing is written.
    pub fn gauge(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, f64)>) {
        self.family(name, "gauge", "", help, values.into_iter().map(|(labels, value)| ("", labels, value)));
    }

    /// A sum that only grows; `_total` is put behind its name.
    pub fn counter(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, f64)>) {
        let values = values.into_iter().map(|(labels, value)| ("_total", labels, value));
        // In OpenMetrics the family has the name without the suffix, in the plain format it has that of its samples.
        let suffix = if self.format == Format::Plain { "_total" } else { "" };
        self.family(name, "counter", suffix, help, values);
    }

    /// How often something was measured, the sum, and for each quantile (0 to 1) the value that so many did not exceed.
    pub fn summary(&mut self, name: &str, help: &str, count: u64, sum: f64, quantiles: &[(&str, f64)]) {
        let quantiles =
            quantiles.iter().map(|(quantile, value)| ("", vec![("quantile", (*quantile).to_owned())], *value));
        let all = [("_sum", Labels::new(), sum), ("_count", Labels::new(), count as f64)];
        self.family(name, "summary", "", help, quantiles.chain(all));
    }

    fn family<'a>(
        &mut self,
        name: &str,
        kind: &str,
        suffix: &str,
        help: &str,
        samples: impl Iterator<Item = (&'a str, Labels, f64)>,
    ) {
        let mut samples = samples.peekable();
        if samples.peek().is_none() {
            return;
        }
        self.line(format_args!("# HELP longrun_{name}{suffix} {}", Escaped(help)));
        self.line(format_args!("# TYPE longrun_{name}{suffix} {kind}"));
        for (ending, labels, value) in samples {
            self.line(format_args!("longrun_{name}{ending}{} {}", Braces(&labels), Number(value)));
        }
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        // A string takes everything.
        _ = writeln!(self.text, "{line}");
    }

    /// The whole text.
    #[must_use]
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.line(format_args!("# EOF"));
        }
        self.text
    }
}

/// Backslashes, quotes and ends of lines, so that a text stays in its place.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            other => f.write_char(other),
        })
    }
}

struct Braces<'a>(&'a [(&'static str, String)]);

impl fmt::Display for Braces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name}=\"{}\"", if number == 0 { '{' } else { ',' }, Escaped(value))?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_char('}') }
    }
}

struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_infinite() {
            return f.write_str(if self.0 > 0.0 { "+Inf" } else { "-Inf" });
        }
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_written_only_for_who_asks_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            ("", Format::Plain),
            ("*/*", Format::Plain),
            ("text/html, text/plain", Format::Plain),
            ("application/openmetrics-text", Format::OpenMetrics),
            (prometheus, Format::OpenMetrics),
            ("Application/OpenMetrics-Text; version=1.0.0", Format::OpenMetrics),
            ("application/openmetrics-text;q=0.2, text/plain", Format::Plain),
            ("application/openmetrics-text;q=0", Format::Plain),
            ("application/openmetrics-text;q=nonsense", Format::Plain),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }

    #[test]
    fn both_formats_hold_the_same_samples_and_each_has_its_own_headers() {
        let write = |format| {
            let mut page = Page::new(format);
            page.counter("left", "What was \"left\"\\", [(vec![("a", "1".into()), ("b", "\n".into())], 3.0)]);
            page.gauge("nothing", "Nothing", []);
            page.gauge("free", "Free", [(Labels::new(), f64::INFINITY)]);
            page.summary("time", "Time", 4, 0.75, &[("0.5", 0.125)]);
            page.finish()
        };
        let samples = "longrun_left_total{a=\"1\",b=\"\\n\"} 3\n";
        let rest = "# HELP longrun_free Free\n# TYPE longrun_free gauge\nlongrun_free +Inf\n\
             # HELP longrun_time Time\n# TYPE longrun_time summary\nlongrun_time{quantile=\"0.5\"} 0.125\nlongrun_time_sum 0.75\nlongrun_time_count 4\n";
        let help = "What was \\\"left\\\"\\\\";
        assert_eq!(
            write(Format::Plain),
            format!("# HELP longrun_left_total {help}\n# TYPE longrun_left_total counter\n{samples}{rest}")
        );
        assert_eq!(
            write(Format::OpenMetrics),
            format!("# HELP longrun_left {help}\n# TYPE longrun_left counter\n{samples}{rest}# EOF\n")
        );
    }
}
