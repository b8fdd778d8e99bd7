//! What a call brought back, whole: for whoever shows it to a person or hands it to a program.
//!
//! Proved by: the end-to-end tests `inspect`, and `ua-sdk`'s tests `looked_at`.

use ua_store::{CallRecord, LedgerStore as _, ReceiptRecord, Store, StoreError, whole_reply, whole_text};

/// The receipt that is a call's answer, with all of the text that its model is given: its own, or that of the call which had the effect in its place.
/// `None` for a call that has no answer.
///
/// # Errors
/// The store cannot be read, or a large part of the text is gone from it.
pub async fn answer_of(store: &dyn Store, call: &CallRecord) -> Result<Option<ReceiptRecord>, StoreError> {
    let source = call.answered_by().unwrap_or(&call.call_id);
    let Some(mut receipt) = store.receipt(source).await? else { return Ok(None) };
    let content = receipt.settlement.as_mut().and_then(|settlement| settlement.content.as_mut());
    if let Some(content) = content
        && let Some(blob) = content.text.blob()
    {
        let text = whole_text(store, blob).await?;
        content.text = content.text.filled(&text).into();
    }
    Ok(Some(receipt))
}

/// The same receipt with the reply as it came, what is large in it included.
///
/// # Errors
/// The store cannot be read, or a large part of the reply is gone from it.
pub async fn with_whole_reply(store: &dyn Store, mut receipt: ReceiptRecord) -> Result<ReceiptRecord, StoreError> {
    receipt.raw = whole_reply(store, &receipt).await?;
    receipt.lifted.clear();
    Ok(receipt)
}
