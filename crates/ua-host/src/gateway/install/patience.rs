//! How long a client waits for a tool, as an entry of a configuration in JSON says it: one field, `timeout`, in the unit of whoever reads the file.
//!
//! Which client that is, only the file's name tells. Read in the wrong unit, an hour is told as three seconds, and a client that waits for half a
//! minute is taken for one that waits for hours.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// In which unit the entries of a configuration say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Seconds.
    Seconds,
    /// Milliseconds. Less than a second is not meant: Claude Code takes no notice of it.
    Milliseconds,
    /// Nobody says so.
    Unknown,
}

/// The ends of the paths of configurations whose client is known by them.
const KNOWN: [(&str, Unit); 11] = [
    // Claude Code: code.claude.com/docs/en/mcp, "timeout" ("in milliseconds", "values below 1000 are ignored"); seen with 2.1.329.
    (".claude.json", Unit::Milliseconds),
    (".mcp.json", Unit::Milliseconds),
    // Cline: src/services/mcp/schemas.ts (`MIN_MCP_TIMEOUT_SECONDS`, `DEFAULT_MCP_TIMEOUT_SECONDS`).
    ("cline_mcp_settings.json", Unit::Seconds),
    // Roo Code and Kilo Code, which comes from it: src/services/mcp/McpHub.ts (`timeout: z.number().min(1).max(3600)`).
    ("mcp_settings.json", Unit::Seconds),
    (".roo/mcp.json", Unit::Seconds),
    (".kilocode/mcp.json", Unit::Seconds),
    // Gemini CLI: its page on MCP servers ("Request timeout in milliseconds"); Qwen Code comes from it.
    (".gemini/settings.json", Unit::Milliseconds),
    (".qwen/settings.json", Unit::Milliseconds),
    // Amazon Q Developer CLI, by now Kiro: its page on the format of agents ("Timeout for each MCP request in milliseconds").
    (".amazonq/mcp.json", Unit::Milliseconds),
    (".aws/amazonq/mcp.json", Unit::Milliseconds),
    (".kiro/settings/mcp.json", Unit::Milliseconds),
];

/// The longest that a client is known to be told to wait for a tool in seconds. A larger number is one of milliseconds, whoever reads it.
const MOST_SECONDS: u64 = 3_600;

impl Unit {
    /// That of the configuration at this path, or at the one that it leads to.
    pub(super) fn of(path: &Path) -> Self {
        let known = |path: &Path| KNOWN.iter().find(|(end, _)| path.ends_with(end)).map(|(_, unit)| *unit);
        known(path).or_else(|| known(&fs::canonicalize(path).ok()?)).unwrap_or(Self::Unknown)
    }

    /// The whole seconds of what an entry says; `None` where it says nothing that can be relied on.
    pub(super) fn seconds(self, said: &Value) -> Option<u32> {
        // By its text, so that what no number of seconds is becomes none.
        let whole = said.as_u64().or_else(|| said.as_f64()?.floor().to_string().parse().ok())?;
        let seconds = match self {
            Self::Seconds => whole,
            // It may be either.
            Self::Unknown if whole <= MOST_SECONDS => 0,
            Self::Milliseconds | Self::Unknown => whole / 1_000,
        };
        u32::try_from(seconds).ok().filter(|seconds| *seconds > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Front};
    use super::*;

    /// How long a configuration says that its client waits, as it is passed on to the bridge.
    fn passed_on(path: &Path, said: &str) -> Option<u64> {
        let front = Front { program: "ua".to_owned(), root: None, own_root: None };
        let text = format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"x\", \"timeout\": {said}}}}}}}");
        let made = Format::Json.wrapped(path, &text, &front, &[]).unwrap();
        let document: Value = serde_json::from_str(&made.text).unwrap();
        assert_eq!(document["mcpServers"]["a"]["timeout"].to_string(), said, "the client's own is as it was");
        let args: Vec<&str> =
            document["mcpServers"]["a"]["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let at = args.iter().position(|word| *word == "--patience")?;
        args.get(at + 1)?.parse().ok()
    }

    /// Every known client with every kind of number: the bridge is told the same span that the client waits, or nothing.
    #[test]
    fn a_time_out_is_the_same_span_for_the_bridge_as_for_its_client() {
        let folder = Path::new("/nowhere");
        for (end, unit) in KNOWN {
            let path = folder.join(end);
            assert_eq!(Unit::of(&path), unit, "{end}");
            let millis = if unit == Unit::Seconds { 1_000 } else { 1 };
            for number in [0, 1, 5, 30, 999, 1_000, 1_999, 3_599, 3_600, 3_601, 60_000, 600_000, 3_599_999, 3_600_000] {
                // Whoever waits an hour waits as long as a person may take.
                let waits = Some(number * millis / 1_000).filter(|seconds| (1..3_600).contains(seconds));
                assert_eq!(passed_on(&path, &number.to_string()), waits, "{end}: {number}");
            }
            assert_eq!(passed_on(&path, "7.5"), (unit == Unit::Seconds).then_some(7), "{end}");
            for said in ["\"30\"", "true", "null", "-5", "[30]"] {
                assert_eq!(passed_on(&path, said), None, "{end}: {said}");
            }
        }
    }

    /// Of a client that is not known, a number that may be of either unit says nothing.
    #[test]
    fn a_number_that_may_be_seconds_or_milliseconds_is_not_passed_on() {
        let path = Path::new("/nowhere/.cursor/mcp.json");
        assert_eq!(Unit::of(path), Unit::Unknown);
        for (said, waits) in [("5", None), ("1000", None), ("3600", None), ("3601", Some(3)), ("60000", Some(60))] {
            assert_eq!(passed_on(path, said), waits, "{said}");
        }
    }

    /// A link is the file that it leads to.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
    fn a_link_to_a_known_configuration_has_its_unit() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cline_mcp_settings.json"), "{}").unwrap();
        let link = folder.path().join("mine.json");
        std::os::unix::fs::symlink("cline_mcp_settings.json", &link).unwrap();
        assert_eq!(Unit::of(&link), Unit::Seconds);
    }
}
