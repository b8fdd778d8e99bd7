//! The conversation of a run as a document (`transcript.md`), and the run in twenty lines (`session_summary.txt`).
//!
//! Spec: Durable runner, current state §10 (standard outputs). Everything said by the job, the model or a tool stands in a
//! fence that it cannot close.

use ua_core::{Audience, Block, CallStatus, Origin, Role, SideEffectClass, ToolText, ToolUse};
use ua_store::{CallRecord, MessageRecord, QuestionRecord, QuestionStatus, ReceiptRecord, RunRecords};

use ua_evidence::EvidenceReport;
use ua_evidence::call_line::{external_id, last_receipt, own_success, reply_text};
use ua_evidence::os_words::in_plain_words;
use ua_evidence::quote::{PLACE, code, cut, fenced, line, sentence, span, stored_name};
use ua_evidence::verdict::Verdict;
use ua_resume::page::Page;
use ua_resume::question::QuestionLine;
use ua_resume::render::write_question;
use ua_resume::usage::UsageSummary;
use ua_resume::{Commands, Standing, calls_in_words, inherited_turns_in_words, processes_words, status_detail};

/// The most characters of a call's arguments and of its result that a transcript shows.
const SHOWN: usize = 4_000;

/// Writes the conversation: what was asked, what the model said, each tool call with its arguments and its result. Long arguments
/// and results are cut, with the command that prints the whole.
///
/// A turn that is not committed has no result messages yet; its calls show what their receipts hold. What is a command in it, and not somebody's
/// words, is made complete by `commands`.
pub fn transcript(records: &RunRecords, standing: &Standing, commands: &Commands) -> String {
    write_transcript(records, standing, &Place { commands, blobs: None })
}

/// The same for a folder in which the texts of large results lie as `<folder>/<blob id>.txt`: they are linked.
pub fn transcript_beside_blobs(records: &RunRecords, standing: &Standing, commands: &Commands, folder: &str) -> String {
    write_transcript(records, standing, &Place { commands, blobs: Some(folder) })
}

fn write_transcript(records: &RunRecords, standing: &Standing, place: &Place<'_>) -> String {
    let mut page = records_head(records, standing);
    let mut pages = TranscriptPages { standing: Some(standing.clone()), ..TranscriptPages::default() };
    pages.write(&mut page, records, place);
    pages.write_questions(&mut page, records, place.commands, |_| true);
    page.finish()
}

/// Where a transcript lies: what its commands name, and the folder of the large results that lie beside it.
struct Place<'a> {
    commands: &'a Commands,
    blobs: Option<&'a str>,
}

/// A transcript that is written piece by piece: turns follow each other, and no more of a long run is in memory than one piece.
#[derive(Debug, Default)]
pub struct TranscriptPages {
    /// The turn under whose heading the last piece ended.
    heading: Option<u32>,
    /// How many of the run's questions stand in the pieces before.
    asked: usize,
    /// Where the run stands, which decides who could still hear an answer.
    standing: Option<Standing>,
}

impl TranscriptPages {
    /// The next piece: the turns of `records`, which follow those of the piece before. The first has the head of the page, which says where the
    /// run stands.
    pub fn next(&mut self, records: &RunRecords, head: Option<&Standing>, commands: &Commands) -> String {
        let mut page = head.map_or_else(Page::continued, |standing| records_head(records, standing));
        if let Some(standing) = head {
            self.standing = Some(standing.clone());
        }
        self.write(&mut page, records, &Place { commands, blobs: None });
        page.finish()
    }

    /// What is left behind the last piece: the questions that nothing was said after. `records` has all questions of the run.
    pub fn rest(&mut self, records: &RunRecords, commands: &Commands) -> String {
        let mut page = Page::continued();
        self.write_questions(&mut page, records, commands, |_| true);
        page.finish()
    }

    /// The questions that were not written yet, as long as `is_due` says so, with what a person answered.
    fn write_questions(
        &mut self,
        page: &mut Page,
        records: &RunRecords,
        commands: &Commands,
        is_due: impl Fn(&QuestionRecord) -> bool,
    ) {
        for asked in records.questions.iter().skip(self.asked).take_while(|asked| is_due(asked)) {
            let question = QuestionLine::of_run(asked, &records.run).naming(commands);
            let question = match &self.standing {
                Some(standing) => question.standing(standing),
                None => question,
            };
            write_question(page, &question, "Question to a person: ");
            self.asked += 1;
        }
    }

    fn write(&mut self, page: &mut Page, records: &RunRecords, place: &Place<'_>) {
        for record in &records.messages {
            // What was asked before this was said.
            self.write_questions(page, records, place.commands, |asked| {
                record.turn > 0 && asked.created_at <= record.created_at
            });
            if record.turn > 0 && self.heading != Some(record.turn) {
                self.heading = Some(record.turn);
                page.heading(2, &turn_heading(records, record));
            }
            write_message(page, records, record, place);
            let is_reply = record.message.role == Role::Assistant;
            if is_reply && records.open_turn().is_some_and(|turn| turn.turn == record.turn) {
                write_open_results(page, records, record.turn);
            }
        }
    }
}

fn records_head(records: &RunRecords, standing: &Standing) -> Page {
    let mut page = Page::titled(&format!("Transcript of {}", records.run.run_id));
    page.item(&format!("status: {}", standing.on_a_page()));
    let models = models(records);
    if !models.is_empty() {
        page.item(&format!("model: {}", code(&models, 300)));
    }
    page.item(&format!("submitted: {}", records.run.created_at));
    page.item(&format!("committed turns: {}", records.run.turn_index));
    if let (Some(parent), Some(point)) = (&records.run.parent_run_id, records.run.forked_at) {
        page.item(&format!("fork of {parent}, sharing its turns up to {}", point.turn));
    }
    page
}

/// The models that were asked, in the order of first use.
fn models(records: &RunRecords) -> String {
    let used = UsageSummary::of(records).models;
    used.iter().map(|model| format!("{}/{}", model.provider, model.model)).collect::<Vec<_>>().join(", ")
}

fn turn_heading(records: &RunRecords, record: &MessageRecord) -> String {
    let own = records.turns.binary_search_by_key(&record.turn, |turn| turn.turn).ok().map(|at| &records.turns[at]);
    let turn = own.or_else(|| records.lineage.turns.iter().find(|turn| turn.turn == record.turn));
    let state = match turn.map(|turn| turn.committed_at) {
        Some(Some(at)) => format!(", committed {at}"),
        Some(None) => ", not committed".to_owned(),
        None => String::new(),
    };
    format!("Turn {}{state}", record.turn)
}

fn write_message(page: &mut Page, records: &RunRecords, record: &MessageRecord, place: &Place<'_>) {
    for block in &record.message.blocks {
        match block {
            Block::Text { text } if text.trim().is_empty() => {}
            Block::Text { text } => {
                page.heading(3, speaker(record.message.origin, Audience::of(&records.run.entrypoint)));
                page.block(&fenced(text, "text"));
            }
            Block::ToolUse(tool_use) => {
                write_tool_use(page, calls_of(records, record.turn, &tool_use.id), tool_use, place.commands);
            }
            Block::ToolResult { tool_use_id, content, is_error } => {
                let call = calls_of(records, record.turn, tool_use_id).next();
                let name = call.map_or(tool_use_id, |call| &call.called_tool().raw);
                write_result(page, name, content, *is_error);
                // What is put together from several calls is in their receipts.
                if let Some(call) = call.filter(|call| call.policy.via.is_none()) {
                    write_where_the_whole_is(page, call, content, place);
                }
            }
            Block::Opaque { provider, value } => {
                let bytes = value.to_string().len();
                page.block(&format!("A block of {bytes} bytes that only the provider {} reads.", code(provider, 60)));
            }
        }
    }
}

fn speaker(origin: Origin, audience: Audience) -> &'static str {
    match origin {
        Origin::Prompt => audience.pick("Job", "Step"),
        Origin::Model => "Model",
        Origin::Tools => "Tools",
        Origin::Phase => "Runner: a phase begins",
        Origin::Iteration => "Runner: an iteration begins",
        Origin::Guidance => "Runner: what the model is told",
        Origin::Resume => "Runner: note after a resume",
        Origin::Omission => "Runner: messages left out",
    }
}

/// The calls behind a tool use: one, or the actions of a composite tool. Providers number tool uses per reply, so the turn belongs to the
/// search.
fn calls_of<'a>(records: &'a RunRecords, turn: u32, tool_use_id: &'a str) -> impl Iterator<Item = &'a CallRecord> {
    let is_shared = turn <= records.run.shared_turns();
    let shared = records.lineage.calls.iter().filter(move |call| is_shared && call.position.turn == turn);
    shared.chain(records.calls_of_turn(turn)).filter(move |call| call.tool_use_id == tool_use_id)
}

fn write_tool_use<'a>(
    page: &mut Page,
    calls: impl Iterator<Item = &'a CallRecord>,
    tool_use: &ToolUse,
    commands: &Commands,
) {
    page.heading(3, &format!("Tool call {}", code(&tool_use.name, 200)));
    let mut known = Vec::new();
    for call in calls {
        known.push(call.call_id.to_string());
        let action = call.policy.via.as_ref().map_or_else(String::new, |_| format!("{}: ", code(&call.name.raw, 200)));
        page.item(&format!(
            "{action}{} — {}, attempts: {}; {}",
            call.call_id,
            call.status.in_words(),
            call.attempt,
            Verdict::of(call).in_words()
        ));
    }
    if known.is_empty() {
        page.item("not in the ledger");
    }
    let arguments = serde_json::to_string_pretty(&tool_use.input).unwrap_or_else(|_| tool_use.input.to_string());
    page.block(&fenced(&cut(&arguments, SHOWN), "json"));
    if is_cut(&arguments) {
        for id in known {
            page.block(&commands.complete(&format!("The whole arguments: `ua calls show {id} --json`.")));
        }
    }
}

fn is_cut(text: &str) -> bool {
    text.char_indices().nth(SHOWN).is_some()
}

/// Says how to read a result of which the page shows a part: as a file beside the page when it lies there, else by a command.
fn write_where_the_whole_is(page: &mut Page, call: &CallRecord, content: &ToolText, place: &Place<'_>) {
    if content.blob().is_none() && !is_cut(content) {
        return;
    }
    let (id, bytes) = (&call.call_id, content.whole_size());
    if let (Some(blob), Some(folder)) = (content.blob(), place.blobs) {
        let name = &blob.blob_id;
        page.block(&format!("The whole result has {bytes} bytes: [{folder}/{name}.txt]({folder}/{name}.txt)."));
    } else {
        let how = format!("The whole result has {bytes} bytes: `ua calls show {id} --full` prints it.");
        page.block(&place.commands.complete(&how));
    }
}

fn write_result(page: &mut Page, name: &str, content: &str, is_error: bool) {
    let kind = if is_error { "Error" } else { "Result" };
    page.heading(3, &format!("{kind} of {}", code(name, 200)));
    page.block(&fenced(&cut(content, SHOWN), "text"));
}

/// What the receipts of an open turn hold; its result messages are written only when it is committed.
fn write_open_results(page: &mut Page, records: &RunRecords, turn: u32) {
    for call in records.calls_of_turn(turn) {
        if let Some(receipt) = last_receipt(records, call) {
            let is_error = !matches!(call.status, CallStatus::Succeeded | CallStatus::Running);
            write_result(page, &call.name.raw, &reply_text(receipt), is_error);
        }
    }
}

/// Tells a run in about twenty lines of plain text. `evidence` is what its stop conditions came to, where they were looked at.
pub fn session_summary(records: &RunRecords, standing: &Standing, evidence: Option<&EvidenceReport>) -> String {
    let run = &records.run;
    let mut lines = vec![
        format!("run        {}", run.run_id),
        format!("objective  {}", line(&run.spec.objective, 160)),
        format!("status     {}", line(&standing.on_a_page(), 100)),
    ];
    if let Some(detail) = status_detail(run.status, run.status_detail.as_deref()) {
        lines.push(format!("detail     {}", sentence(&in_plain_words(detail))));
    }
    for asked in records.questions.iter().filter(|question| question.status == QuestionStatus::Open) {
        // A tool that asked on the connection of a process that is gone hears nothing any more.
        let is_gone = asked.waits_on_its_connection() && !standing.is_driven();
        let gone = if is_gone { " (the tool that asked is gone, and hears no answer)" } else { "" };
        lines.push(format!("question   {}{gone}: {}", asked.question_id, line(&asked.text, 160)));
    }
    let models = models(records);
    lines.push(format!(
        "model      {}",
        if models.is_empty() { "none was asked".to_owned() } else { line(&models, 160) }
    ));
    lines.push(format!("workspace  {}", line(&run.workspace_dir, PLACE)));
    lines.push(format!("submitted  {}", run.created_at));
    lines.push(format!("changed    {}", run.updated_at));
    lines.push(format!("active     {} in {}", span(run.held_millis), processes_words(records)));
    let steps: Vec<String> =
        records.steps.iter().map(|step| format!("{} {}", line(&step.phase, 40), step.status)).collect();
    lines.push(format!("steps      {}", if steps.is_empty() { "none yet".to_owned() } else { steps.join(", ") }));
    lines.push(format!("turns      {} committed{}", run.turn_index, inherited_turns_in_words(records)));
    lines.push(format!("calls      {}", calls_in_words(records, CallStatus::in_words)));
    let usage = UsageSummary::of(records);
    let tokens = usage.tokens;
    lines.push(format!("tokens     {} ({} in, {} out)", tokens.total(), tokens.input_tokens, tokens.output_tokens));
    lines.push(format!("cost       {}", usage.cost_in_words()));
    let open = records.questions.iter().filter(|question| question.status == QuestionStatus::Open).count();
    if !records.questions.is_empty() {
        lines.push(format!("questions  {} open of {}", open, records.questions.len()));
    }
    lines.extend(evidence.map(conditions_line));
    lines.extend(outside_effects(records));
    let main = run.final_artifact_ref.as_deref().map_or_else(|| "none".to_owned(), |path| line(path, PLACE));
    lines.push(format!("artifact   {main}"));
    let output = run.final_output.as_deref().map_or_else(|| "none".to_owned(), |output| line(output, 200));
    lines.push(format!("output     {output}"));
    lines.push(format!("look at it `ua runs show {}`", run.run_id));
    lines.push(String::new());
    lines.join("\n")
}

/// Which stop conditions hold.
fn conditions_line(evidence: &EvidenceReport) -> String {
    let told: Vec<String> = evidence
        .conditions
        .iter()
        .map(|condition| {
            format!("{}: {}", line(&condition.condition, 60), if condition.met { "holds" } else { "does not hold" })
        })
        .collect();
    format!("conditions {}", if told.is_empty() { "none are named".to_owned() } else { line(&told.join("; "), 400) })
}

/// How many effects outside the workspace the summary lists before it refers to the ledger.
const SHOWN_EFFECTS: usize = 6;

/// The newest calls that were to change something outside the workspace, with their verdicts: those of sub-agents, and the run's own.
fn outside_effects(records: &RunRecords) -> Vec<String> {
    let below = records.lineage.sub_agents.iter().flat_map(|child| &child.effects);
    let receipts: Vec<ReceiptRecord> = records.receipts.iter().chain(&records.lineage.receipts).cloned().collect();
    let outside: Vec<&CallRecord> = below
        .chain(&records.calls)
        .filter(|call| matches!(call.policy.class, SideEffectClass::External | SideEffectClass::Memory))
        .collect();
    let earlier = outside.len().saturating_sub(SHOWN_EFFECTS);
    let mut lines = Vec::new();
    if earlier > 0 {
        lines.push(format!("effects    {earlier} earlier ones: ua calls list --run {}", records.run.run_id));
    }
    lines.extend(outside[earlier..].iter().map(|call| {
        let level = own_success(&receipts, call)
            .map_or_else(String::new, |receipt| format!(", {}", stored_name(&receipt.evidence)));
        let id = external_id(&receipts, call).map_or_else(String::new, |id| format!(", id {}", line(&id, 100)));
        format!("effect     {}: {}{level}{id}", line(&call.name.tool, 80), Verdict::of(call).in_words())
    }));
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::RunStatus;

    use super::*;
    use ua_evidence::testing::{Story, assert_inert, hostile_story, mail_policy, read_policy};

    fn stored(story: &Story) -> Standing {
        Standing::Stored(story.records.run.status, story.records.run.stop_reason)
    }

    fn told() -> Story {
        let mut story = Story::new(r#"{"objective": "Read the page and mail Ana."}"#);
        let read = story.asks(
            "I read it.\n\n# Not a heading",
            &[("crawl", json!({"urls": ["http://127.0.0.1/a"]}), read_policy())],
        );
        story.starts(&read[0]);
        story.succeeds(&read[0], "# A page\n```rust\nfn main() {}\n```\n## Turn 9, committed", None);
        story.commits();
        let send = story.asks("I send it.", &[("send_email", json!({"to": "ana@example.test"}), mail_policy())]);
        story.starts(&send[0]);
        story
    }

    #[test]
    fn the_whole_conversation_is_told_and_foreign_text_stays_in_its_fence() {
        let mut story = told();
        let send = story.records.calls[1].call_id.clone();
        story.not_sent(&send, "connection refused");
        story.commits();
        story.asks("It could not be sent.", &[]);
        story.commits();
        story.ends(RunStatus::Failed, None, "email.send: 0 of 1");
        insta::assert_snapshot!("transcript", transcript(&story.records, &stored(&story), &Commands::default()));
    }

    #[test]
    fn a_program_has_a_step_and_no_job() {
        let mut story = told();
        story.records.run.entrypoint = Audience::LIBRARY.to_owned();
        let told = transcript(&story.records, &stored(&story), &Commands::default());
        assert!(told.contains("### Step\n"), "{told}");
        let summary = session_summary(&story.records, &stored(&story), None);
        for text in [told, summary] {
            let mut words = text.split(|letter: char| !letter.is_alphanumeric());
            assert!(!words.any(|word| word.eq_ignore_ascii_case("job")), "{text}");
        }
    }

    #[test]
    fn an_open_turn_shows_what_its_receipts_hold() {
        let mut story = told();
        let send = story.records.calls[1].call_id.clone();
        assert!(transcript(&story.records, &stored(&story), &Commands::default()).contains("## Turn 2, not committed"));
        assert!(
            !transcript(&story.records, &stored(&story), &Commands::default())
                .contains("Result of `mcp__ua__send_email`")
        );
        story.replies(&send, "queued as m-1");
        let text = transcript(&story.records, &stored(&story), &Commands::default());
        assert!(text.contains("### Result of `mcp__ua__send_email`") && text.contains("queued as m-1"), "{text}");
    }

    #[test]
    fn nothing_that_is_said_gets_out_of_its_fence() {
        let (story, _) = hostile_story();
        assert_inert(&transcript(&story.records, &stored(&story), &Commands::default()));
        let mut committed = hostile_story().0;
        committed.commits();
        assert_inert(&transcript(&committed.records, &stored(&committed), &Commands::default()));
        let summary = session_summary(&story.records, &stored(&story), None);
        assert!(summary.lines().all(|line| !line.trim_start().starts_with('#')), "{summary}");
    }

    #[test]
    fn a_long_result_is_cut_and_the_page_says_where_the_whole_is() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        let text = format!("start {} end", "ü".repeat(5_000));
        let arguments = json!({"text": "a".repeat(5_000)});
        let id = story.asks("", &[("crawl", arguments, read_policy())])[0].clone();
        story.starts(&id);
        story.succeeds(&id, &text, None);
        story.commits();
        let page = transcript(&story.records, &stored(&story), &Commands::default());
        assert!(page.contains("start ü") && !page.contains("ü end"), "{page}");
        assert!(
            page.contains(&format!("`ua calls show {id} --full`")) && page.contains(&format!("{} bytes", text.len()))
        );
        assert!(page.contains(&format!("The whole arguments: `ua calls show {id} --json`.")));
        // A result that is a blob lies beside the page when the page is made so.
        let blob = ua_core::BlobRef::of(&text);
        let Some(Block::ToolResult { content, .. }) =
            story.records.messages.last_mut().and_then(|last| last.message.blocks.last_mut())
        else {
            panic!("the turn's results are the last message")
        };
        *content = ToolText::by_reference(blob.clone());
        let page = transcript_beside_blobs(&story.records, &stored(&story), &Commands::default(), "blobs");
        assert!(page.contains(&format!("(blobs/{}.txt)", blob.blob_id)) && !page.contains("--full"), "{page}");
    }

    #[test]
    fn equal_tool_use_ids_of_two_turns_are_told_apart() {
        let mut story = told();
        story.records.calls[1].tool_use_id = "toolu_1_1".to_owned();
        let last = story.records.messages.last_mut().unwrap();
        let Some(Block::ToolUse(tool_use)) = last.message.blocks.last_mut() else {
            panic!("the reply asks for a tool")
        };
        tool_use.id = "toolu_1_1".to_owned();
        let text = transcript(&story.records, &stored(&story), &Commands::default());
        let second = &text[text.find("## Turn 2").unwrap()..];
        assert!(second.contains(story.records.calls[1].call_id.as_str()), "{second}");
        assert!(!second.contains(story.records.calls[0].call_id.as_str()), "{second}");
    }

    #[test]
    fn a_transcript_in_pieces_is_the_transcript() {
        let mut story = told();
        story.commits();
        story.asks("Then?", &[("send_email", json!({"to": "bob@example.test"}), mail_policy())]);
        let last = story.records.messages.last().map_or(0, |record| record.turn);
        for size in [1, 2, 9] {
            let (mut pages, mut text, standing) = (TranscriptPages::default(), String::new(), stored(&story));
            for first in (0..=last).step_by(size) {
                let mut part = story.records.clone();
                let here = first..first + u32::try_from(size).unwrap();
                part.messages.retain(|record| here.contains(&record.turn));
                part.turns.retain(|turn| here.contains(&turn.turn));
                part.calls.retain(|call| here.contains(&call.position.turn));
                text.push_str(&pages.next(&part, (first == 0).then_some(&standing), &Commands::default()));
            }
            assert_eq!(text, transcript(&story.records, &stored(&story), &Commands::default()), "{size}");
        }
    }

    #[test]
    fn a_run_is_told_in_about_twenty_lines() {
        let mut story = told();
        let send = story.records.calls[1].call_id.clone();
        story.loses(&send);
        story.questions(&send);
        insta::assert_snapshot!("session_summary", session_summary(&story.records, &stored(&story), None));
        for _ in 0..30 {
            story.asks("", &[("send_email", json!({}), mail_policy())]);
        }
        let many = session_summary(&story.records, &stored(&story), None);
        assert!(many.lines().count() <= 28, "{many}");
    }
}
