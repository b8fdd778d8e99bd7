//! Files that are not any more what was sent of them: a receipt proves what left, not what lies in the workspace now.

use serde::Serialize;
use ua_core::{CallId, NamedFile, Sha256};
use ua_store::CallRecord;

use ua_evidence::artifact::Artifact;
use ua_evidence::quote::clean;
use ua_evidence::verdict::Verdict;

/// A file that changed after a call had sent it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedFile {
    /// Its path, relative to the workspace.
    pub path: String,
    /// The newest call that sent it.
    pub call_id: CallId,
    /// The tool, as the model named it.
    pub tool: String,
    /// Digest of what was sent.
    pub sent_sha256: Sha256,
    /// Digest of what is there now.
    pub sha256: Sha256,
}

/// The files whose newest send, by a call that happened, was of other contents.
pub(crate) fn changed_files(calls: &[CallRecord], artifacts: &[Artifact]) -> Vec<ChangedFile> {
    let changed = |file: &Artifact| {
        let mut sent = calls.iter().rev().filter(|call| Verdict::of(call) == Verdict::Happened);
        let (call, digest) = sent.find_map(|call| Some((call, sent_digest(call, &file.path)?)))?;
        (digest != file.sha256).then(|| ChangedFile {
            path: file.path.clone(),
            call_id: call.call_id.clone(),
            tool: clean(&call.name.raw),
            sent_sha256: digest,
            sha256: file.sha256,
        })
    };
    artifacts.iter().filter_map(changed).collect()
}

/// The digest that a call's file at `path` had when it was sent. Digests are kept by place in the arguments (`attachments[0]`).
fn sent_digest(call: &CallRecord, path: &str) -> Option<Sha256> {
    let sent = call.file_digests.iter().find(|(place, _)| {
        let pointer = format!("/{}", place.replace('[', "/").replace(']', "").replace('.', "/"));
        let named = call.arguments.pointer(&pointer).and_then(|value| value.as_str()).unwrap_or_default();
        let NamedFile::Paths(forms) = NamedFile::of(named) else { return false };
        let means_it = |form: &String| {
            let plain = form.strip_prefix("./").unwrap_or(form);
            plain == path || (form.starts_with('/') && form.ends_with(&format!("/{path}")))
        };
        forms.iter().any(means_it)
    });
    sent.map(|(_, digest)| *digest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::sha256;

    use super::*;
    use ua_evidence::testing::{Story, artifact, mail_policy};

    #[test]
    fn a_file_that_changed_after_it_was_sent_is_named_with_the_call_that_sent_it() {
        let mut story = Story::new("{\"objective\": \"x\"}");
        let files = [artifact("work_products/report.pdf"), artifact("notes.md")];
        let sends = [
            json!({"attachments": ["./work_products/report.pdf", {"path": "file:///ws/notes.md"}]}),
            json!({"attachments": ["work_products/report.pdf"]}),
        ];
        let asked: Vec<_> = sends.into_iter().map(|arguments| ("send_email", arguments, mail_policy())).collect();
        let ids = story.asks("", &asked);
        let now = |path: &str| sha256(path);
        let first = [("attachments[0]", now("work_products/report.pdf")), ("attachments[1].path", sha256("old notes"))];
        story.call(&ids[0]).file_digests =
            first.into_iter().map(|(place, digest)| (place.to_owned(), digest)).collect();
        let second = [("attachments[0]".to_owned(), sha256("old report"))];
        story.call(&ids[1]).file_digests = second.into_iter().collect();
        assert_eq!(changed_files(&story.records.calls, &files), [], "nothing was sent yet");

        story.starts(&ids[0]);
        story.succeeds(&ids[0], "sent", None);
        story.starts(&ids[1]);
        story.loses(&ids[1]);
        let changed = changed_files(&story.records.calls, &files);
        let paths: Vec<(&str, &CallId)> = changed.iter().map(|file| (file.path.as_str(), &file.call_id)).collect();
        assert_eq!(paths, [("notes.md", &ids[0])], "a send that is in doubt says nothing");

        story.succeeds(&ids[1], "sent", None);
        let changed = changed_files(&story.records.calls, &files);
        assert_eq!(changed[1].call_id, ids[0]);
        assert_eq!((changed[0].sent_sha256, &changed[0].call_id), (sha256("old report"), &ids[1]));
    }
}
