//! HTTP to receivers that a person configured: no redirects, no retries, and what an answer says about the effect.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use hyper::body::Bytes;
use reqwest::header::CONTENT_LENGTH;
use reqwest::{Body, RequestBuilder, Response, StatusCode};
use tokio::sync::watch;
use tokio::time::timeout;
use ua_http::Versions;
use url::Url;

use crate::error::ToolServerError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For a question without a body, with its answer.
pub(crate) const QUESTION_TIMEOUT: Duration = Duration::from_secs(30);
/// For the text of an answer whose status is known already.
const TEXT_TIMEOUT: Duration = Duration::from_secs(30);
/// How much of a body is handed to the connection at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// A client that sends each request once: one retry layer is enough, and it belongs to the caller's ledger.
pub(crate) fn client() -> Result<reqwest::Client, ToolServerError> {
    ua_http::client(Versions::OneAndTwo)
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_TIMEOUT)
        .build()
        .map_err(|source| ToolServerError::Http { source })
}

/// How long a receiver is waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// While it takes nothing more of the request, or has all of it and says nothing.
    pub(crate) idle: Duration,
    /// From the beginning to its status.
    pub(crate) total: Duration,
}

impl Default for Patience {
    /// A large message over a slow line may take long as long as it goes on.
    fn default() -> Self {
        Self { idle: Duration::from_mins(2), total: Duration::from_mins(30) }
    }
}

/// Why there is no status, with the cause.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The request never left this machine.
    NeverLeft(String),
    /// It may have reached the receiver.
    MayHaveLeft(String),
}

/// Posts `body`. Only a request that may have left can have an unknown outcome: one that found no connection did not.
pub(crate) async fn post(request: RequestBuilder, body: Vec<u8>, patience: Patience) -> Result<Response, NoAnswer> {
    let length = body.len();
    let body = Bytes::from(body);
    let (taken, mut progress) = watch::channel(());
    // The connection asks for a piece when it has room for it; that is the progress which a plain body would not show.
    let pieces = (0..length).step_by(PIECE_BYTES).map(move |start| {
        taken.send_replace(());
        Ok::<_, std::convert::Infallible>(body.slice(start..length.min(start + PIECE_BYTES)))
    });
    let request = request.header(CONTENT_LENGTH, length).body(Body::wrap_stream(stream::iter(pieces)));
    let work = async {
        let mut sending = Box::pin(request.send());
        let mut is_going_out = true;
        loop {
            let step = timeout(patience.idle, async {
                tokio::select! {
                    biased;
                    answer = &mut sending => Some(answer),
                    piece = progress.changed(), if is_going_out => {
                        is_going_out = piece.is_ok();
                        None
                    }
                }
            });
            match step.await {
                Ok(Some(answer)) => return answer.map_err(no_answer),
                Ok(None) => {}
                Err(_) => {
                    let what = if is_going_out { "took no more of it" } else { "said nothing" };
                    return Err(NoAnswer::MayHaveLeft(format!("it {what} for {:?}", patience.idle)));
                }
            }
        }
    };
    timeout(patience.total, work)
        .await
        .unwrap_or_else(|_| Err(NoAnswer::MayHaveLeft(format!("it did not answer within {:?}", patience.total))))
}

fn no_answer(error: reqwest::Error) -> NoAnswer {
    // The address may carry a token: it is left out of what the model reads.
    let error = error.without_url();
    let cause = root_cause(&error);
    if error.is_connect() || error.is_builder() { NoAnswer::NeverLeft(cause) } else { NoAnswer::MayHaveLeft(cause) }
}

/// The text of an answer, if it comes whole, soon, and has at most `limit` bytes.
pub(crate) async fn text_up_to(limit: usize, answer: Response) -> Option<Vec<u8>> {
    let reading = async {
        let mut body = Vec::new();
        let mut pieces = answer.bytes_stream();
        while let Some(piece) = pieces.next().await {
            body.extend_from_slice(&piece.ok()?);
            if body.len() > limit {
                return None;
            }
        }
        Some(body)
    };
    timeout(TEXT_TIMEOUT, reading).await.ok().flatten()
}

/// Whether an HTTP status says that the request had no effect: whoever answers so did not take it, for what it is, for who sends it, or for now.
/// Others may come from a proxy behind which it was done, or say that it was done before (409), or how its answer would look (406).
pub(crate) fn means_not_done(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        307 | 308 | 400..=405 | 410 | 411 | 413..=415 | 417 | 421 | 422 | 425 | 426 | 428 | 429 | 431 | 451
    )
}

/// The innermost cause, which names what happened; the outer ones repeat the address.
pub(crate) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    ua_http::cause(error)
}

/// An address as it may be shown: where it leads, and nothing of the rest, which may hold a token.
pub(crate) fn shown(address: &str) -> String {
    let url = Url::parse(address).ok();
    let host = url.as_ref().and_then(|url| Some(format!("{}://{}/…", url.scheme(), url.host_str()?)));
    host.unwrap_or_else(|| "…".to_owned())
}

/// Whether the host of `url` is this machine itself, so that nobody can listen in between.
pub(crate) fn is_loopback(url: &Url) -> bool {
    // Hosts of schemes like smtp: are not parsed as addresses by the URL standard.
    url.host_str().is_some_and(|host| {
        let host = host.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const BODY: usize = 16 * 1024 * 1024;

    async fn post_to(url: String, idle: Duration) -> Result<Response, NoAnswer> {
        let patience = Patience { idle, ..Patience::default() };
        post(client().unwrap().post(url), vec![b'x'; BODY], patience).await
    }

    #[test]
    fn an_address_is_shown_without_what_may_be_secret() {
        assert_eq!(shown("https://user:hush@example.org:8443/hook/hush?token=hush"), "https://example.org/…");
        assert_eq!(shown("hush"), "…");
    }

    #[test]
    fn what_a_status_says_about_the_request() {
        let not_done = (100..600).filter(|status| means_not_done(StatusCode::from_u16(*status).unwrap()));
        let expected = [
            307, 308, 400, 401, 402, 403, 404, 405, 410, 411, 413, 414, 415, 417, 421, 422, 425, 426, 428, 429, 431,
            451,
        ];
        assert_eq!(not_done.collect::<Vec<u16>>(), expected);
    }

    #[tokio::test]
    async fn a_slow_upload_may_take_longer_than_the_idle_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let receiving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut ticks = tokio::time::interval(Duration::from_millis(250));
            let (mut received, mut buffer) = (Vec::new(), vec![0; 1024 * 1024]);
            while received.len() < BODY {
                ticks.tick().await;
                stream.read_exact(&mut buffer).await.unwrap();
                received.extend_from_slice(&buffer);
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            let mut rest = vec![0; 1024];
            while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
            String::from_utf8_lossy(&received[..1024]).into_owned()
        });
        // 16 pieces, one every 250 ms, are more than three seconds in all.
        let answer = post_to(url, Duration::from_secs(3)).await.unwrap();
        assert_eq!(text_up_to(10, answer).await, Some(b"{}".to_vec()));
        let head = receiving.await.unwrap().to_lowercase();
        assert!(head.contains(&format!("content-length: {BODY}\r\n")) && !head.contains("chunked"), "{head}");
    }

    #[tokio::test]
    async fn a_receiver_that_stops_leaves_the_outcome_open_and_one_that_is_not_there_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let outcome = post_to(url.clone(), Duration::from_millis(300)).await.unwrap_err();
        assert_eq!(outcome, NoAnswer::MayHaveLeft("it took no more of it for 300ms".to_owned()));
        drop(listener);
        let outcome = post_to(url, Duration::from_millis(300)).await.unwrap_err();
        assert!(matches!(outcome, NoAnswer::NeverLeft(_)), "{outcome:?}");
    }

    #[tokio::test]
    async fn an_answer_without_end_is_not_kept() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 1024 * 1024];
            let mut left = BODY;
            while left > 0 {
                left = left.saturating_sub(stream.read(&mut buffer).await.unwrap());
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            while stream.write_all(&buffer).await.is_ok() {}
        });
        let answer = post_to(url, Duration::from_secs(30)).await.unwrap();
        assert_eq!(text_up_to(1024 * 1024, answer).await, None);
    }
}
